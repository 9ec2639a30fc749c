// The page's words: in the language chosen in the menu, else the bot's, else the browser's.

import { cookie, local } from "./storage.js";

export const BOTS = "confidant.language"; // what the bot speaks, where it does not follow the browser

const catalogs = await (await fetch(new URL("strings.json", import.meta.url))).json();
const asked = spoken(navigator.languages?.length ? navigator.languages : [navigator.language]);
const base = (tag) => tag.toLowerCase().split("-")[0];
const wanted = [cookie("language"), local.get(BOTS), ...asked.map(base)];

export const language = wanted.find((name) => name in catalogs) ?? "en";
// Of one language the browser may know better which one: dates of "en-GB" and "en-US" differ.
export const locale = wanted[0] || wanted[1] ? (asked.find((tag) => base(tag) === language) ?? language) : asked[0];

/** The tags that are ones: some systems say "en-US@posix", with which no date can be written. */
function spoken(tags) {
  const known = tags.flatMap((tag) => {
    try {
      return Intl.getCanonicalLocales(tag.split("@")[0].split(".")[0].replaceAll("_", "-"));
    } catch {
      return [];
    }
  });
  return known.length ? known : ["en"];
}

/** Writes dates as the page's language has them; where that is not to be had, as the browser does. */
export function dates(options) {
  for (const tags of [language === "zh" ? "zh-CN" : locale, language, undefined]) {
    try {
      return new Intl.DateTimeFormat(tags, options);
    } catch {
      continue; // some systems name no language that there is
    }
  }
  return { format: (date) => date.toISOString().slice(0, 16).replace("T", " ") };
}

/** The browser's time zone, such as "Europe/Berlin"; empty where it tells none. */
export function zone() {
  try {
    return new Intl.DateTimeFormat().resolvedOptions().timeZone ?? "";
  } catch {
    return "";
  }
}

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
