// Names that are like one that is not there.

const most = 3; // names that are offered

// nearest returns those of names that differ from one in few letters, the most alike first.
export function nearest(name, names) {
  const wanted = name.toLowerCase();
  const limit = Math.max(1, Math.floor(name.length / 4));
  return names.map((other) => ({ other, differs: distance(wanted, other.toLowerCase(), limit) })).filter(({ other, differs }) => differs <= limit && other !== name)
    .sort((a, b) => a.differs - b.differs || (a.other < b.other ? -1 : 1)).slice(0, most).map(({ other }) => other);
}

// distance returns how many letters are to be added, left out, replaced or exchanged with the next to make b of a, or more than limit if there are more.
function distance(a, b, limit) {
  if (Math.abs(a.length - b.length) > limit) {
    return limit + 1;
  }
  let before = [], last = [...Array(b.length + 1).keys()];
  for (let i = 1; i <= a.length; i++) {
    const row = [i];
    for (let j = 1; j <= b.length; j++) {
      row[j] = Math.min(last[j] + 1, row[j - 1] + 1, last[j - 1] + (a[i - 1] === b[j - 1] ? 0 : 1));
      if (i > 1 && j > 1 && a[i - 1] === b[j - 2] && a[i - 2] === b[j - 1]) {
        row[j] = Math.min(row[j], before[j - 2] + 1);
      }
    }
    if (Math.min(...row) > limit) {
      return limit + 1;
    }
    [before, last] = [last, row];
  }
  return last[b.length];
}
