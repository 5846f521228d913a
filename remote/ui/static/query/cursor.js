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
// It returns the hooks of uPlot that it needs; hide(); and busy(), which says whether a point is being read or a range selected.
export function cursorOf(node, said, target) {
  const tip = element("div", { class: "graph-tip", hidden: true });
  node.append(tip);
  let chart, spot;

  const pin = (isPinned) => {
    chart.cursor._lock = isPinned; // the crosshair stays, too
    tip.classList.toggle("pinned", isPinned);
  };
  const hide = () => {
    spot = undefined;
    tip.hidden = true;
    pin(false);
    target.mark(null);
  };
  const leave = () => {
    hide();
    chart.setCursor({ left: -10, top: -10 }, false);
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
  const isSelecting = () => chart.select.width > 0;
  // moved follows the mouse; a point that is pinned is shown again, as its value may be new.
  const moved = () => {
    const { idx, left, top, _lock: isPinned } = chart.cursor;
    const at = isPinned ? spot.at : idx;
    const thing = at === null || isSelecting() ? undefined : isPinned ? spot.thing : target.near(at, left, top);
    at < chart.data[0].length && thing !== undefined && target.has(at, thing) ? show(at, thing) : hide();
  };
  const clicked = ({ offsetX: left, offsetY: top, pointerType }) => {
    const wasPinned = chart.cursor._lock;
    hide();
    chart.setCursor({ left, top });
    if (!wasPinned || pointerType === "touch") {
      pin(spot !== undefined);
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
      leave();
      say();
    } else if (Object.hasOwn(keys, event.key) && !event.ctrlKey && !event.metaKey && !event.altKey) {
      event.preventDefault();
      const [at, thing] = keys[event.key](event);
      if (thing !== undefined) {
        chart.setCursor({ left: chart.valToPos(chart.data[0][at], "x"), top: target.place(at, thing) }, false);
        show(at, thing);
        pin(true);
        say();
      }
    }
  });
  node.addEventListener("blur", () => spot && leave());

  const init = (made) => {
    chart = made;
    chart.over.addEventListener("click", clicked);
  };
  return { hooks: { init, setCursor: moved }, hide, busy: () => chart.cursor._lock || isSelecting() };
}
