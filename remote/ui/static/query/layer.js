// Things that lie over a plot, each at a time: a click on one shows what it is.

import { element } from "../common/dom.js";

// edge is how far from the edges of the plot a thing stays, in pixels.
const edge = 5;

// layerOf returns a layer of plotOf, whose things have the class look: node; fill(things), each of which has a time t in seconds; and
// place(chart, pos, isObserved), which puts them where they are now: pos(v) is the place of a value from the top, in pixels, and isObserved says that the axis is what histograms
// observe; and busy(), whether one is being read. value(thing, isObserved) returns the value at which a thing is, NaN for the lower edge, or undefined where it is as high as the plot;
// title(thing) says in words what it is, and tell(thing) returns the nodes that say more.
export function layerOf(look, { value, title, tell }) {
  const node = element("div", { class: "layer" });
  let things = [], marks = [], card;
  const close = () => {
    const open = card;
    card = undefined; // as the focus leaves it when it is removed
    open?.remove();
  };
  const show = (mark, thing) => {
    close();
    card = element("div", { class: "layer-card", role: "dialog", "aria-label": title(thing), tabindex: "-1",
      onkeydown: (event) => event.key === "Escape" && close(),
      onfocusout: ({ relatedTarget }) => !card?.contains(relatedTarget) && close() }, ...tell(thing));
    node.append(card);
    const left = mark.offsetLeft + card.offsetWidth + 12 > node.clientWidth ? mark.offsetLeft - card.offsetWidth - 4 : mark.offsetLeft + 12;
    card.style.left = `${Math.max(0, left)}px`;
    card.style.top = `${Math.max(0, Math.min(mark.offsetTop, node.clientHeight - card.offsetHeight))}px`;
    card.focus({ preventScroll: true });
  };
  for (const kind of ["mousedown", "mouseup", "click", "dblclick"]) {
    node.addEventListener(kind, (event) => event.stopPropagation()); // the plot selects a range, or pins a point
  }
  const fill = (found) => {
    close();
    things = found;
    marks = things.map((thing) => element("span", { class: look, title: title(thing), "aria-hidden": "true", onclick: ({ currentTarget }) => show(currentTarget, thing) }));
    node.replaceChildren(...marks);
  };
  const place = (chart, pos, isObserved) => {
    const { clientWidth: width, clientHeight: height } = chart.over;
    marks.forEach((mark, i) => {
      const x = chart.valToPos(things[i].t, "x"), v = value(things[i], isObserved);
      mark.hidden = !(x >= 0 && x <= width);
      mark.style.left = `${x}px`;
      if (v !== undefined) {
        const y = pos(v), lowest = height - edge;
        mark.style.top = `${Number.isNaN(y) ? lowest : Math.max(edge, Math.min(y, lowest))}px`;
      }
    });
  };
  return { node, fill, place, busy: () => card !== undefined };
}
