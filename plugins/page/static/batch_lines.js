// Checks a file of requests before it is sent, and makes a new one of lines that have failed.

/** Endpoints of which a batch may consist. */
export const ENDPOINTS = ["/v1/chat/completions", "/v1/completions", "/v1/embeddings", "/v1/responses"];
const MOST_PROBLEMS = 20;
const MOST_LINES = 50000;
const MEMBERS = new Set(["custom_id", "method", "url", "body"]);

/**
 * Return what a text in JSONL holds: { lines, endpoint, problems }.
 * `problems` are texts that name the line. With any, the server would refuse the file or fail the line.
 */
export function checked(text) {
  const problems = [];
  const ids = new Map();
  const endpoints = new Map();
  let lines = 0;
  text.split("\n").forEach((line, i) => {
    if (!line.trim()) return;
    lines += 1;
    const say = (words) => problems.length < MOST_PROBLEMS && problems.push(`Line ${i + 1} ${words}`);
    let value;
    try {
      value = JSON.parse(line);
    } catch (error) {
      say(`is not JSON: ${error.message}`);
      return;
    }
    if (value === null || typeof value !== "object" || Array.isArray(value)) return say("is not an object");
    checkLine(value, say);
    if (typeof value.custom_id === "string") {
      if (ids.has(value.custom_id)) say(`has the custom_id of line ${ids.get(value.custom_id)}: ${JSON.stringify(value.custom_id)}`);
      else ids.set(value.custom_id, i + 1);
    }
    if (typeof value.url === "string") endpoints.set(value.url, (endpoints.get(value.url) ?? 0) + 1);
  });
  if (!lines) problems.push("The file has no lines");
  if (lines > MOST_LINES) problems.push(`The file has ${lines} lines; the most is ${MOST_LINES}`);
  if (endpoints.size > 1) problems.push(`All lines must have one url; there are ${[...endpoints.keys()].slice(0, 5).join(" and ")}`);
  return { lines, endpoint: endpoints.size ? endpoints.keys().next().value : null, problems };
}

function checkLine(value, say) {
  if (typeof value.custom_id !== "string" || !value.custom_id) say("has no custom_id, which must be a text");
  if (value.method !== "POST") say(`has the method ${JSON.stringify(value.method)}; it must be "POST"`);
  if (!ENDPOINTS.includes(value.url)) say(`has the url ${JSON.stringify(value.url)}; it must be one of ${ENDPOINTS.join(", ")}`);
  if (value.body === null || typeof value.body !== "object" || Array.isArray(value.body)) say("has no body, which must be an object");
  else if (value.url === "/v1/chat/completions" && !value.body.messages?.length) say("has no messages in its body");
  const others = Object.keys(value).filter((name) => !MEMBERS.has(name));
  if (others.length) say(`has a member ${JSON.stringify(others[0])} that a line does not have`);
}

/**
 * Return the lines of an input file whose requests are in an error file.
 * @param {string} input text of the input file.
 * @param {string} errors text of the error file.
 */
export function failedLines(input, errors) {
  const failed = new Set(objects(errors).map(([, value]) => value.custom_id));
  return objects(input).filter(([, value]) => failed.has(value.custom_id)).map(([line]) => line).join("\n") + "\n";
}

/** Return [line, value] of each line that is an object. */
export function objects(text) {
  const found = [];
  for (const line of text.split("\n")) {
    if (!line.trim()) continue;
    try {
      const value = JSON.parse(line);
      if (value && typeof value === "object") found.push([line, value]);
    } catch {
      // Lines that were cut are not shown.
    }
  }
  return found;
}
