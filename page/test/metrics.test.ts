import { describe, expect, test } from "vitest";
import { parse, quantile, sumBy } from "../src/data/metrics";

const TEXT = `# HELP x_seconds Something.
# TYPE x_seconds histogram
x_seconds_bucket{agent="a",le="0.1"} 5
x_seconds_bucket{agent="a",le="1.0"} 9
x_seconds_bucket{agent="a",le="+Inf"} 10
x_seconds_bucket{agent="b",le="0.1"} 0
x_seconds_bucket{agent="b",le="1.0"} 1
x_seconds_bucket{agent="b",le="+Inf"} 1
stalls_total{agent="a \\"x\\"",clock="idle"} 3
stalls_total{agent="b",clock="tool"} 0
stalls_total{agent="b",clock="idle"} 1
plain 7
`;

describe("metrics", () => {
  const metrics = parse(TEXT);

  test("are read with their labels", () => {
    expect(metrics.get("plain")).toEqual([{ labels: {}, value: 7 }]);
    expect(metrics.get("stalls_total")?.[0]?.labels).toEqual({ agent: 'a "x"', clock: "idle" });
  });

  test("a quantile is the bound of its bucket, over all agents", () => {
    expect(quantile(metrics, "x_seconds", 0.4)).toBe(0.1);
    expect(quantile(metrics, "x_seconds", 0.5)).toBe(1);
    expect(quantile(metrics, "x_seconds", 0.99)).toBe(Infinity);
  });

  test("what is not there is none", () => {
    expect(quantile(metrics, "y_seconds", 0.5)).toBeNull();
  });

  test("sums leave out what never happened", () => {
    expect(sumBy(metrics, "stalls_total", "clock")).toEqual([["idle", 4]]);
  });
});
