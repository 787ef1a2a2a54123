// Numbers for people. The API's 64-bit numbers come as text.

export const num = (value) => Number(value || 0);

const pick = (value, digits) => value >= 100 ? value.toFixed(0) : value >= 10 ? value.toFixed(Math.min(digits, 1)) : value.toFixed(digits);

export function duration(ns) {
  ns = num(ns);
  if (ns === 0) return '0';
  for (const [unit, size] of [['h', 3600e9], ['min', 60e9]]) {
    if (ns >= 2 * size) return `${pick(ns / size, 1)} ${unit}`;
  }
  for (const [unit, size] of [['s', 1e9], ['ms', 1e6], ['µs', 1e3]]) {
    if (ns >= size) return `${pick(ns / size, 2)} ${unit}`;
  }
  return `${ns} ns`;
}

export function count(value) {
  value = num(value);
  for (const [unit, size] of [['G', 1e9], ['M', 1e6], ['k', 1e4]]) {
    if (value >= size) return pick(value / Math.min(size, unit === 'k' ? 1e3 : size), 2) + ' ' + unit;
  }
  return value.toLocaleString('en');
}

export function rate(value) {
  if (value === null || value === undefined) return '–';
  if (value === 0) return '0';
  return value < 10 ? value.toFixed(1) : count(Math.round(value));
}

export function bytes(value) {
  value = num(value);
  for (const [unit, size] of [['TiB', 2 ** 40], ['GiB', 2 ** 30], ['MiB', 2 ** 20], ['KiB', 2 ** 10]]) {
    if (value >= size) return `${pick(value / size, 1)} ${unit}`;
  }
  return `${value} B`;
}

export const percent = (ratio) => `${pick(num(ratio) * 100, num(ratio) < 0.1 ? 1 : 0)} %`;

export const clock = (unixNs) => new Date(num(unixNs) / 1e6).toLocaleTimeString([], {hour12: false});

export function moment(unixNs) {
  const then = new Date(num(unixNs) / 1e6);
  return then.toDateString() === new Date().toDateString() ? clock(unixNs) : `${then.toLocaleDateString()} ${clock(unixNs)}`;
}

// "CAPTURE_STATE_STORED" -> "stored".
export const shortName = (value, prefix) => (value || '').replace(prefix, '').toLowerCase().replaceAll('_', ' ');
