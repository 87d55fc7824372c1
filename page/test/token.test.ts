import { describe, expect, test } from "vitest";
import { TokenKeeper, tokenIn } from "../src/data/token";

function storage(): Storage {
  const kept = new Map<string, string>();
  return {
    getItem: (key: string) => kept.get(key) ?? null,
    setItem: (key: string, value: string) => void kept.set(key, value),
    removeItem: (key: string) => void kept.delete(key),
  } as unknown as Storage;
}

const at = (hash: string, search = "") => ({ hash, search, pathname: "/" });

describe("the token", () => {
  test("is taken out of the address", () => {
    expect(tokenIn(at("#token=tk_a%2Bb"))).toEqual({ token: "tk_a+b", rest: "/" });
    expect(tokenIn(at("#/s/one", "?token=tk_a&x=1"))).toEqual({ token: "tk_a", rest: "/?x=1#/s/one" });
  });

  test("a view is not taken for a token", () => {
    expect(tokenIn(at("#/s/token=x"))).toEqual({ token: null, rest: "/#/s/token=x" });
  });

  test("is kept, and the address is cleaned at once", async () => {
    const keeper = new TokenKeeper(storage());
    const seen: string[] = [];
    await expect(keeper.find(at("#token=tk_a"), (rest) => seen.push(rest))).resolves.toBe("tk_a");
    expect(seen).toEqual(["/"]);
    expect(keeper.get()).toBe("tk_a");
  });

  test("is given to another tab of the page", async () => {
    const first = new TokenKeeper(storage());
    await first.find(at("#token=tk_a"), () => {});
    const second = new TokenKeeper(storage());
    await expect(second.find(at(""), () => {})).resolves.toBe("tk_a");
  });
});
