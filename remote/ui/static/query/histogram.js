// A native histogram as bars and as text.

import { element, shape } from "../common/dom.js";
import { count, number } from "../common/format.js";

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
  const tall = (n) => (largest > 0 ? Math.max(n > 0 ? 1 : 0, (n / largest) * height) : 0);
  return shape("svg", { class: "bars", "aria-hidden": "true", width: counts.length * width, height, viewBox: `0 0 ${counts.length * width} ${height}` },
    ...counts.map((n, i) => shape("rect", { x: i * width, y: height - tall(n), width: width - 1, height: tall(n) })));
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
