import { defineConfig } from "vite";

// Everything is served from this origin, by name, with no inline script or style: see the policy in
// src/turnkeeper/gateway/page.py.
export default defineConfig({
  base: "/",
  build: {
    outDir: "../src/turnkeeper/page",
    emptyOutDir: true,
    target: "es2022",
    assetsInlineLimit: 0,
    modulePreload: { polyfill: false },
    sourcemap: false,
    rollupOptions: { output: { manualChunks: undefined } },
  },
});
