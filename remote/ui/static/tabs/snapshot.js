// The adapter's metrics at a time, and how they have grown.

// A Snapshot holds the metrics of an adapter: now, and an earlier time to compare with. Each is a list of
// { name, labels, value }. Without earlier all of a counter counts as growth.
export class Snapshot {
  constructor(now, earlier = []) {
    this.byName = group(now);
    this.before = new Map(earlier.map((m) => [keyOf(m), m.value]));
  }

  has(name) {
    return this.byName.has(name);
  }

  // list returns the series of a metric whose labels match: each by a text, or by a RegExp.
  list(name, labels = {}) {
    return (this.byName.get(name) ?? []).filter((m) => Object.entries(labels).every(([label, want]) =>
      (want instanceof RegExp ? want.test(m.labels[label] ?? "") : m.labels[label] === want)));
  }

  // sum adds up the series of a metric.
  sum(name, labels) {
    return this.list(name, labels).reduce((sum, m) => sum + m.value, 0);
  }

  // max is the largest of them, 0 if there is none.
  max(name, labels) {
    return this.list(name, labels).reduce((max, m) => Math.max(max, m.value), 0);
  }

  // grown returns by how much each series of a counter has grown, those that have.
  grown(name, labels) {
    return this.list(name, labels).map((m) => {
      const before = this.before.get(keyOf(m)) ?? 0;
      return { ...m, value: m.value < before ? m.value : m.value - before }; // less than before is a restart
    }).filter((m) => m.value > 0);
  }

  // growth adds that up.
  growth(name, labels) {
    return this.grown(name, labels).reduce((sum, m) => sum + m.value, 0);
  }
}

function group(list) {
  const byName = new Map();
  for (const m of list) {
    byName.set(m.name, [...(byName.get(m.name) ?? []), m]);
  }
  return byName;
}

function keyOf({ name, labels }) {
  return JSON.stringify([name, ...Object.entries(labels).sort()]);
}

// fromStatus reads the metrics of /api/v1/status/adapter: values by name and labels, as in the text format.
export function fromStatus(metrics) {
  return Object.entries(metrics).map(([key, value]) => {
    const at = key.indexOf("{");
    const labels = at < 0 ? [] : [...key.slice(at).matchAll(/([a-zA-Z_]\w*)="((?:[^"\\]|\\.)*)"/g)].map(([, name, text]) => [name, unquote(text)]);
    return { name: at < 0 ? key : key.slice(0, at), labels: Object.fromEntries(labels), value };
  });
}

function unquote(text) {
  try {
    return JSON.parse(`"${text}"`);
  } catch {
    return text;
  }
}

// fromQuery reads the result of an instant query, without the labels job and instance.
export function fromQuery(result) {
  return result.filter(({ value }) => value).map(({ metric, value: [, text] }) => named(metric, Number(text)));
}

// atTimes reads the result of a range query: the metrics at each time.
export function atTimes(result) {
  const times = new Map();
  for (const { metric, values = [] } of result) {
    for (const [t, text] of values) {
      times.set(t, [...(times.get(t) ?? []), named(metric, Number(text))]);
    }
  }
  return times;
}

function named({ __name__: name, job, instance, ...labels }, value) {
  return { name, labels, value };
}
