// A native histogram as bars and as text.

import { element } from "../common/dom.js";
import { count, number } from "../common/format.js";

const svg = "http://www.w3.org/2000/svg";

// The height of bars, and the width of one, in pixels. At most so many are drawn.
const height = 20;
const width = 4;
const most = 60;

// bars draws how many observations each bucket has, from the lowest bucket on. More buckets than there is room for are
// drawn together.
export function bars({ buckets }) {
  const together = Math.ceil(buckets.length / most);
  const counts = [];
  buckets.forEach(([, , , n], i) => {
    const at = Math.floor(i / together);
    counts[at] = (counts[at] ?? 0) + number(n);
  });
  const largest = Math.max(...counts);
  const drawn = document.createElementNS(svg, "svg");
  const attributes = { class: "bars", "aria-hidden": "true", width: counts.length * width, height, viewBox: `0 0 ${counts.length * width} ${height}` };
  for (const [name, value] of Object.entries(attributes)) {
    drawn.setAttribute(name, value);
  }
  counts.forEach((n, i) => {
    const bar = document.createElementNS(svg, "rect");
    const tall = largest > 0 ? Math.max(n > 0 ? 1 : 0, (n / largest) * height) : 0;
    for (const [name, value] of Object.entries({ x: i * width, y: height - tall, width: width - 1, height: tall })) {
      bar.setAttribute(name, value);
    }
    drawn.append(bar);
  });
  return drawn;
}

// bucketsOf lists the buckets, each with its bounds, how many observations it has, and a bar.
export function bucketsOf({ buckets }) {
  const largest = Math.max(...buckets.map(([, , , n]) => number(n)));
  return element("ul", { class: "buckets" }, ...buckets.map((bucket) => {
    const bar = element("span", { class: "bucket-part", "aria-hidden": "true" });
    bar.style.width = `${largest > 0 ? (100 * number(bucket[3])) / largest : 0}%`;
    return element("li", {}, element("span", {}, bounds(bucket)), element("span", {}, count(bucket[3])), element("span", {}, bar));
  }));
}

// histogramText writes a histogram as Prometheus does.
export function histogramText({ count: all, sum, buckets }) {
  return `{${[`count:${all}`, `sum:${sum}`, ...(buckets ?? []).map((bucket) => `${bounds(bucket).replace(" ", "")}:${bucket[3]}`)].join(", ")}}`;
}

// bounds writes the bounds of a bucket, with brackets where a bound belongs to it.
function bounds([kind, lower, upper]) {
  const [before, after] = [["(", "]"], ["[", ")"], ["(", ")"], ["[", "]"]][kind];
  return `${before}${lower}, ${upper}${after}`;
}
