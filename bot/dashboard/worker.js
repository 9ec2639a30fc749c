// The service worker: lets the page open when the bot cannot be reached, and tells of messages
// while it is closed.
//
// It keeps the page's own files, named in FILES with their versions, and nothing else: no history,
// no answer of an API, no page that the server draws. What can be had from the bot is never taken
// from here, so an update shows at the next load.

const CACHE = `confidant-files-${VERSION}`;
const ANSWER_TIME = 4_000; // ms a page may take before the one kept here is shown
const AWAY = new Set([502, 503, 504]); // what stands in front of the bot says: nobody is there

const openedFromHere = new Set(); // clients that get every file from here: none of another version

self.addEventListener("install", (event) => {
  event.waitUntil(keep().then(() => self.skipWaiting()));
});

self.addEventListener("activate", (event) => {
  event.waitUntil(dropOthers().then(() => self.clients.claim()));
});

self.addEventListener("fetch", (event) => {
  const { request } = event;
  const { origin, pathname } = new URL(request.url);
  if (request.method !== "GET" || origin !== location.origin) return;
  if (!Object.hasOwn(FILES, pathname)) return;
  event.respondWith(request.mode === "navigate" ? page(event, pathname) : file(event, pathname));
});

self.addEventListener("push", (event) => {
  event.waitUntil(tell(event.data));
});

self.addEventListener("notificationclick", (event) => {
  event.notification.close();
  event.waitUntil(show());
});

self.addEventListener("pushsubscriptionchange", (event) => {
  event.waitUntil(renew(event));
});

/** Keeps every file in its version of now; fails, to be tried again, when there is another one. */
async function keep() {
  const cache = await caches.open(CACHE);
  try {
    await Promise.all(
      Object.entries(FILES).map(async ([path, version]) => {
        const answer = await fetch(path, { cache: "no-cache" });
        if (!answer.ok || answer.redirected) throw new Error(`${path} is not to be had`);
        const tag = answer.headers.get("ETag");
        if (tag && !tag.includes(version)) throw new Error(`${path} has another version`);
        await cache.put(path, answer);
      }),
    );
  } catch (error) {
    await caches.delete(CACHE);
    throw error;
  }
}

async function dropOthers() {
  const names = await caches.keys();
  await Promise.all(names.filter((name) => name !== CACHE).map((name) => caches.delete(name)));
}

async function page(event, path) {
  const asked = fetch(event.request);
  const answer = await Promise.race([asked.catch(() => null), after(ANSWER_TIME)]);
  if (answer && !AWAY.has(answer.status)) return answer;
  const kept = await find(path);
  if (!kept) return asked;
  openedFromHere.add(event.resultingClientId);
  return kept;
}

async function file(event, path) {
  const kept = await find(path);
  if (kept && openedFromHere.has(event.clientId)) return kept;
  const answer = await fetch(event.request).catch(() => null);
  return answer && !AWAY.has(answer.status) ? answer : (kept ?? answer ?? Response.error());
}

async function find(path) {
  return (await caches.open(CACHE)).match(path);
}

function after(ms) {
  return new Promise((resolve) => setTimeout(resolve, ms, null));
}

// --- what is told while nobody looks ---

async function tell(data) {
  const note = noteIn(data);
  const pages = await chats();
  if (pages.some(({ visibilityState }) => visibilityState === "visible")) return;
  await self.registration.showNotification(note.title, {
    body: note.body ?? "",
    lang: note.lang ?? "",
    icon: "/assets/icon-192.png",
    tag: "written", // one at a time, however many there were
    renotify: true,
  });
}

/** What was sent; a browser wants something to be shown in any case. */
function noteIn(data) {
  try {
    const note = data.json();
    if (typeof note?.title === "string") return note;
  } catch {
    // It is none of ours.
  }
  return { title: NAME };
}

async function show() {
  const [page] = await chats();
  return page ? page.focus() : self.clients.openWindow("/");
}

async function chats() {
  const pages = await self.clients.matchAll({ type: "window", includeUncontrolled: true });
  return pages.filter(({ url }) => new URL(url).pathname === "/");
}

/** The browser has another address for its notes now. Without words, until somebody wants them. */
async function renew({ oldSubscription, newSubscription }) {
  const fresh =
    newSubscription ?? (await self.registration.pushManager.subscribe(oldSubscription.options));
  const headers = { "Content-Type": "application/json" };
  await fetch("/api/push", { method: "POST", headers, body: JSON.stringify(fresh) });
}
