// Metrics in the text form of Prometheus, as far as the overview needs them.
//
// Decides how a histogram becomes a quantile. It must not know what is measured. Invariant: what is
// not there is none, and not zero.

export interface Series { labels: Record<string, string>; value: number }

export function parse(text: string): Map<string, Series[]> {
  const found = new Map<string, Series[]>();
  for (const line of text.split("\n")) {
    const match = /^([a-zA-Z_:][\w:]*)(?:\{(.*)\})? (\S+)/.exec(line);
    if (match === null) continue;
    const [, name = "", raw = "", value = ""] = match;
    const labels: Record<string, string> = {};
    for (const [, key = "", said = ""] of raw.matchAll(/(\w+)="((?:[^"\\]|\\.)*)"/g)) labels[key] = said.replace(/\\(.)/g, "$1");
    const series = found.get(name) ?? [];
    series.push({ labels, value: value === "+Inf" ? Infinity : Number(value) });
    found.set(name, series);
  }
  return found;
}

/** A quantile over all agents: the upper bound of the bucket that it falls into. */
export function quantile(metrics: Map<string, Series[]>, name: string, q: number): number | null {
  const buckets = new Map<number, number>();
  for (const { labels, value } of metrics.get(`${name}_bucket`) ?? []) {
    const bound = labels["le"] === "+Inf" ? Infinity : Number(labels["le"]);
    buckets.set(bound, (buckets.get(bound) ?? 0) + value);
  }
  const whole = buckets.get(Infinity) ?? 0;
  if (whole === 0) return null;
  for (const [bound, count] of [...buckets].sort(([a], [b]) => a - b)) if (count >= whole * q) return bound;
  return null;
}

export function sumBy(metrics: Map<string, Series[]>, name: string, label: string): [string, number][] {
  const sums = new Map<string, number>();
  for (const { labels, value } of metrics.get(name) ?? []) {
    const key = labels[label] ?? "";
    if (value > 0) sums.set(key, (sums.get(key) ?? 0) + value);
  }
  return [...sums].sort(([, a], [, b]) => b - a);
}
