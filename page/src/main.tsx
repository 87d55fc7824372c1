// Where the page begins.

import { render } from "preact";
import { begin } from "./app/keeper";
import { followAddress } from "./app/route";
import { beginSettings } from "./app/settings";
import "./style.css";
import { Shell } from "./view/shell";

beginSettings();
void begin().then(() => {
  followAddress();
  render(<Shell />, document.getElementById("app")!);
});
