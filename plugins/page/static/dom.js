// Builds elements. Texts become text nodes: nothing here, or on the whole page, is parsed as HTML.

/**
 * Return a new element.
 * @param {string} tag name of the element.
 * @param {object} properties `class`, `on…` functions, `dataset`, properties such as `value`, or attributes.
 * @param {...(Node|string|number|null|false|Array)} children nodes and texts; null and false are left out.
 */
export function h(tag, properties = {}, ...children) {
  const made = document.createElement(tag);
  for (const [name, value] of Object.entries(properties)) set(made, name, value);
  made.append(...nodes(children));
  return made;
}

/** Replace an element's children. */
export function fill(element, ...children) {
  element.replaceChildren(...nodes(children));
  return element;
}

/** Return a button. */
export function button(text, onclick, properties = {}) {
  return h("button", { type: "button", onclick, ...properties }, text);
}

/** Return a control below its name. */
export function labelled(name, control, note = null) {
  return h("label", {}, name, control, note && h("small", {}, note));
}

/** Show a short message for a few seconds. */
export function notify(text) {
  const shown = h("p", {}, text);
  const area = document.getElementById("notice");
  area.append(shown);
  while (area.children.length > 3) area.firstChild.remove();
  setTimeout(() => shown.remove(), 5000);
}

/** Copy a text to the clipboard, and say so. */
export async function copy(text) {
  try {
    await navigator.clipboard.writeText(text);
    notify("Copied");
  } catch {
    notify("The browser does not allow copying; select the text instead");
  }
}

/** Offer a text as a file to save. */
export function save(name, text, type = "application/json") {
  const url = URL.createObjectURL(text instanceof Blob ? text : new Blob([text], { type }));
  const link = h("a", { href: url, download: name });
  link.click();
  setTimeout(() => URL.revokeObjectURL(url), 60000);
}

function set(element, name, value) {
  if (value === null || value === undefined || value === false) return;
  if (name === "class") element.className = value;
  else if (name === "dataset") Object.assign(element.dataset, value);
  else if (name.startsWith("on")) element.addEventListener(name.slice(2), value);
  else if (["value", "checked", "disabled", "open"].includes(name)) element[name] = value;
  else element.setAttribute(name, value === true ? "" : value);
}

function nodes(children) {
  return children
    .flat(Infinity)
    .filter((child) => child !== null && child !== undefined && child !== false)
    .map((child) => (child instanceof Node ? child : document.createTextNode(String(child))));
}
