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

export const local = area("local");
export const session = area("session");
