// The client of AG-UI itself: one run after the other with `HttpAgent`, whose pipeline verifies the
// order of events (`verifyEvents`) and their shapes. Prints what it was told, as one line of JSON.
//   node http_agent.mjs FOLDER_OF_THE_PACKAGE '{"url", "threadId", "runs": [{"runId", "text", "approve"}]}'
import { pathToFileURL } from "node:url";

const [folder, given] = process.argv.slice(2);
const { HttpAgent, verifyEvents } = await import(
  pathToFileURL(`${folder}/node_modules/@ag-ui/client/dist/index.mjs`)
);
if (typeof verifyEvents !== "function") throw new Error("there is no verifyEvents");

const job = JSON.parse(given);
const agent = new HttpAgent({ url: job.url, threadId: job.threadId });
const told = [];
for (const run of job.runs) {
  const events = [];
  const subscriber = { onEvent: ({ event }) => void events.push(event) };
  if (run.text !== undefined)
    agent.addMessage({ id: `m-${run.runId}`, role: "user", content: run.text });
  const resume = (agent.pendingInterrupts ?? []).map((one) => ({
    interruptId: one.id, status: "resolved", payload: { approved: run.approve === true },
  }));
  let error = null;
  try {
    await agent.runAgent(
      { runId: run.runId, ...(run.approve === undefined ? {} : { resume }) }, subscriber,
    );
  } catch (fault) {
    error = String(fault.message ?? fault);
  }
  told.push({ events, error, pending: (agent.pendingInterrupts ?? []).length });
}
console.log(JSON.stringify({ told, messages: agent.messages }));
