// What the browser keeps between reloads. Where that is forbidden or full, the page goes on without.

/** The areas, "local" (this browser) and "session" (this tab), each with get, set and keys. */
function area(name) {
  const tried = (action, otherwise) => {
    try {
      return action(window[`${name}Storage`]) ?? otherwise;
    } catch {
      return otherwise;
    }
  };
  return {
    get: (key) => tried((store) => store.getItem(key), ""),
    set: (key, value) => tried((store) => (value ? store.setItem(key, value) : store.removeItem(key))),
    keys: () => tried((store) => Object.keys(store), []),
  };
}

/** What the menu was set to, "theme" or "language"; empty for none. */
export function cookie(name) {
  try {
    return document.cookie.match(`(?:^|; )confidant_${name}=([a-z]+)`)?.[1] ?? "";
  } catch {
    return ""; // cookies are forbidden
  }
}

export const local = area("local");
export const session = area("session");
