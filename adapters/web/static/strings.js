// The page's words, in the language the browser asks for.

const catalogs = await (await fetch("/static/strings.json")).json();
const wanted = navigator.languages?.length ? navigator.languages : [navigator.language || "en"];
const base = wanted.map((tag) => tag.toLowerCase().split("-")[0]).find((tag) => tag in catalogs);

export const language = base ?? "en";
export const locale = wanted[0];

/** The sentence for a key, with `{name}` filled in. */
export function t(key, values = {}) {
  const template = catalogs[language][key] ?? catalogs.en[key] ?? key;
  return template.replace(/\{(\w+)\}/g, (_, name) => values[name] ?? "");
}

/** Puts the words into everything marked with data-t, data-t-label or data-t-placeholder. */
export function translate(root) {
  document.documentElement.lang = language === "zh" ? "zh-CN" : language;
  for (const node of root.querySelectorAll("[data-t]")) {
    node.textContent = t(node.dataset.t);
  }
  for (const node of root.querySelectorAll("[data-t-label]")) {
    node.setAttribute("aria-label", t(node.dataset.tLabel));
  }
  for (const node of root.querySelectorAll("[data-t-placeholder]")) {
    node.placeholder = t(node.dataset.tPlaceholder);
  }
}
