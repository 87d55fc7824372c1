// The keys, for whoever asks.
//
// Decides how they are told. It must not know what they do: the table is here, the keys are in `shell`.

import { signal } from "@preact/signals";
import { Modal } from "./parts";

export const isHelpOpen = signal(false);

/** What the key of commands is called on this machine. */
export const COMMANDS_KEY = /Mac|iPhone|iPad/.test(navigator.platform) ? "⌘ K" : "Ctrl K";

const KEYS: [string[], string][] = [
  [[COMMANDS_KEY], "find sessions and commands"],
  [["a"], "allow what the agent asks for"],
  [["d"], "deny it"],
  [["n"], "add a note to the answer"],
  [["r"], "write a message"],
  [["Enter"], "send it"],
  [["Shift Enter"], "a new line in it"],
  [["Esc"], "out of the text field, or close this"],
  [["/"], "search sessions"],
  [["c"], "a new session"],
  [["g", "s"], "go to the sessions"],
  [["g", "i"], "go to the inbox"],
  [["g", "o"], "go to the overview"],
  [["?"], "these keys"],
];

export function Help() {
  const close = () => (isHelpOpen.value = false);
  return (
    <Modal class="help" label="Keys" close={close}>
      <div>
        <h2>Keys <button class="quiet" autoFocus onClick={close}>Close</button></h2>
        <table><tbody>
          {KEYS.map(([keys, does]) => <tr><th scope="row">{keys.map((key) => <><kbd>{key}</kbd> </>)}</th><td>{does}</td></tr>)}
        </tbody></table>
      </div>
    </Modal>
  );
}
