// The cursor of a graph: what it says of a point, by the mouse, by touch and by the keyboard.

import { element } from "../common/dom.js";

// room is between the point and what is said of it, in pixels.
const room = 14;

// cursorOf lets a graph be read. node is around the plot and can have the focus; said is where sentences for screen
// readers go. What there is at a time of index at is a thing that the target makes:
//
//	near(at, left, top)  that at a place of the plot, in pixels, if there is one
//	first(at)            that to begin with
//	beside(at, thing, d) that above, for d = 1, or below, for -1
//	has(at, thing)       whether it has a value there
//	place(at, thing)     where it is, in pixels from the top of the plot
//	tell(at, thing)      the nodes that say what it is
//	sentence(at, thing)  the same for screen readers
//	mark(at, thing)      shows which it is; nothing if at is null
//
// It returns attach(chart, signal), which a new chart needs; moved(), for the hook setCursor; again(), for new values;
// and busy(), which says whether a point is being read or a range selected.
export function cursorOf(node, said, target, onZoomOut) {
  const tip = element("div", { class: "graph-tip", hidden: true });
  let chart, spot, isPinned = false, isDragging = false, touched = false;

  const hide = () => {
    spot = undefined;
    isPinned = false;
    tip.hidden = true;
    tip.classList.remove("pinned");
    if (chart) {
      chart.cursor._lock = false;
    }
    target.mark(null);
  };
  const show = (at, thing) => {
    spot = { at, thing };
    tip.replaceChildren(...target.tell(at, thing));
    tip.hidden = false;
    const { offsetLeft, offsetTop, clientWidth, clientHeight } = chart.over;
    const x = offsetLeft + chart.valToPos(chart.data[0][at], "x"), y = offsetTop + target.place(at, thing);
    const left = x + room + tip.offsetWidth <= offsetLeft + clientWidth ? x + room : x - room - tip.offsetWidth;
    tip.style.left = `${Math.max(0, Math.min(left, node.clientWidth - tip.offsetWidth))}px`;
    tip.style.top = `${Math.max(0, Math.min(y - tip.offsetHeight / 2, offsetTop + clientHeight - tip.offsetHeight))}px`;
    target.mark(at, thing);
  };
  const pin = () => {
    isPinned = spot !== undefined;
    chart.cursor._lock = isPinned; // the crosshair stays, too
    tip.classList.toggle("pinned", isPinned);
  };
  const moved = () => {
    const { idx: at, left, top } = chart.cursor;
    if (isPinned) {
      return;
    }
    const thing = at === null || at === undefined || left < 0 || isDragging ? undefined : target.near(at, left, top);
    thing === undefined ? hide() : show(at, thing);
  };
  const clicked = (event) => {
    const wasPinned = isPinned;
    hide();
    chart.setCursor({ left: event.offsetX, top: event.offsetY });
    if (!wasPinned || touched) {
      pin();
      say();
    }
  };
  const say = () => {
    said.textContent = spot ? target.sentence(spot.at, spot.thing) : "";
  };

  // search returns the first time at which the thing has a value, from a time on.
  const search = (from, step) => {
    const last = chart.data[0].length - 1;
    const thing = spot?.thing ?? target.first(step > 0 ? 0 : last);
    let at = Math.max(0, Math.min(last, from));
    while (at >= 0 && at <= last && !target.has(at, thing)) {
      at += step;
    }
    return at >= 0 && at <= last ? [at, thing] : [spot?.at ?? last, thing];
  };
  const end = () => chart.data[0].length - 1;
  const beside = (d) => (spot ? [spot.at, target.beside(spot.at, spot.thing, d)] : search(end(), -1));
  const keys = {
    ArrowLeft: ({ shiftKey }) => search((spot?.at ?? end() + 1) - (shiftKey ? 10 : 1), -1),
    ArrowRight: ({ shiftKey }) => search((spot?.at ?? -1) + (shiftKey ? 10 : 1), 1),
    Home: () => search(0, 1),
    End: () => search(end(), -1),
    ArrowUp: () => beside(1),
    ArrowDown: () => beside(-1),
  };
  node.addEventListener("keydown", (event) => {
    if (event.key === "Escape" && spot) {
      hide();
      chart.setCursor({ left: -10, top: -10 }, false);
      say();
    } else if (Object.hasOwn(keys, event.key) && !event.ctrlKey && !event.metaKey && !event.altKey) {
      event.preventDefault();
      const [at, thing] = keys[event.key](event);
      if (thing !== undefined) {
        chart.setCursor({ left: chart.valToPos(chart.data[0][at], "x"), top: target.place(at, thing) }, false);
        show(at, thing);
        pin();
        say();
      }
    }
  });
  node.addEventListener("blur", () => chart && spot && (hide(), chart.setCursor({ left: -10, top: -10 }, false)));

  const attach = (made, signal) => {
    chart = made;
    node.append(tip);
    addEventListener("mouseup", () => { isDragging = false; }, { signal });
    chart.over.addEventListener("pointerdown", (event) => { touched = event.pointerType === "touch"; });
    chart.over.addEventListener("mousedown", (event) => { isDragging = event.button === 0 && !touched; });
    chart.over.addEventListener("click", clicked);
    chart.over.addEventListener("dblclick", () => {
      hide();
      onZoomOut();
    });
  };
  const again = () => {
    if (spot) {
      spot.at < chart.data[0].length && target.has(spot.at, spot.thing) ? show(spot.at, spot.thing) : hide();
    }
  };
  return { attach, moved, again, busy: () => isPinned || isDragging };
}
