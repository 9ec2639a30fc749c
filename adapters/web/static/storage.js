// What the browser keeps between reloads. Where that is forbidden or full, the page goes on without.

const FILES = "unsent";

/** Whether this page is a temporary chat: it keeps nothing, and what others keep is not its own. */
export const isTemporary = document.documentElement.classList.contains("temporary");

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
    get: (key) => (isTemporary && name === "session" ? "" : tried((store) => store.getItem(key), "")),
    set: (key, value) =>
      isTemporary || tried((store) => (value ? store.setItem(key, value) : store.removeItem(key))),
    keys: () => (isTemporary ? [] : tried((store) => Object.keys(store), [])),
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

let database;

/** Asks the browser's database; nothing where that is forbidden or full. */
async function ask(mode, action) {
  if (isTemporary) return undefined;
  try {
    database ??= open();
    const asked = action((await database).transaction(FILES, mode).objectStore(FILES));
    return await answer(asked);
  } catch {
    return undefined;
  }
}

function open() {
  const asked = indexedDB.open("confidant", 1);
  asked.onupgradeneeded = () => asked.result.createObjectStore(FILES, { keyPath: "id" });
  return answer(asked);
}

function answer(asked) {
  return new Promise((resolve, reject) => {
    asked.onsuccess = () => resolve(asked.result);
    asked.onerror = () => reject(asked.error);
  });
}

/** Files that are not sent yet, by id. */
export const unsent = {
  all: async () => (await ask("readonly", (files) => files.getAll())) ?? [],
  put: (file) => ask("readwrite", (files) => files.put(file)),
  remove: (id) => ask("readwrite", (files) => files.delete(id)),
};

export const local = area("local");
export const session = area("session");
