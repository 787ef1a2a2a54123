// The last minutes, kept in this tab only.

const KEPT = 150;  // samples: 5 minutes of one every 2 s

const series = new Map();

export function note(name, value) {
  let values = series.get(name);
  if (!values) series.set(name, values = []);
  values.push({at: Date.now(), value});
  if (values.length > KEPT) values.shift();
}

export const recent = (name) => series.get(name) || [];

// Growth per second of a total over the last `windowMs`; null until enough of it has passed. Totals move in steps, about once a
// second, and a change of tabs asks at once: between two answers alone the rate would jump.
const SHORTEST_MS = 1900;
const windows = new Map();
export function growthOver(name, total, windowMs, now = performance.now()) {
  let samples = windows.get(name);
  if (!samples) windows.set(name, samples = []);
  if (samples.length && total < samples[samples.length - 1].total) samples.length = 0;  // the daemon began anew
  samples.push({total, now});
  while (samples.length > 2 && samples[1].now <= now - windowMs) samples.shift();
  const [first] = samples;
  return now - first.now < SHORTEST_MS ? null : (total - first.total) * 1e3 / (now - first.now);
}

// Growth per second between two answers of totals. While nothing is called the daemon goes on showing the same moment:
// after a while of that the rate is 0.
const QUIET_MS = 3000;
const totals = new Map();
export function growth(name, total, monoNs) {
  const before = totals.get(name);
  if (before && before.monoNs === monoNs) return Date.now() - before.at > QUIET_MS ? 0 : before.rate;
  const rate = before && monoNs > before.monoNs ? Math.max(0, total - before.total) * 1e9 / (monoNs - before.monoNs) : null;
  totals.set(name, {total, monoNs, rate, at: Date.now()});
  return rate;
}
