// Beside a page with words of the person's: when some of them are forgotten, it is drawn again.

const FIRST_DELAY = 1_000; // ms before a lost connection is tried again …
const LONGEST_DELAY = 60_000; // … and the longest such wait
const HELLO = JSON.stringify({ type: "hello", version: 1, format: "none" });
const ROOT = new URL("..", import.meta.url).pathname.replace(/\/$/, "");
const TYPED = `typed ${location.pathname}`;

let delay = FIRST_DELAY;
let wasOpen = false;
let isLeaving = false; // a form was sent: another page comes, or soon never will

function connect() {
  const socket = new WebSocket(`${location.origin.replace("http", "ws")}${ROOT}/chat/ws`);
  let opened = false;
  socket.addEventListener("open", () => {
    socket.send(HELLO);
    if (wasOpen) drawAgain(); // what was forgotten meanwhile nobody says twice
    opened = wasOpen = true;
    delay = FIRST_DELAY;
  });
  socket.addEventListener("message", ({ data }) => {
    if (JSON.parse(data).type === "forgotten") drawAgain();
  });
  socket.addEventListener("close", () => {
    if (!opened) checkLogin();
    setTimeout(connect, delay);
    delay = Math.min(2 * delay, LONGEST_DELAY);
  });
}

/** Loads the page once more; what was typed and not sent is in its place again. */
function drawAgain() {
  if (isLeaving) return;
  const typed = changed();
  if (location.pathname.endsWith("/edit") && typed.length) return; // saving it asks what is there now
  keep(JSON.stringify(typed.map(({ id, value }) => [id, value])));
  if (location.pathname === `${ROOT}/memory/forget`) location.replace(location.pathname + location.search); // it was posted
  else location.reload();
}

function changed() {
  const fields = document.querySelectorAll("main :is(textarea, input:not([type=hidden]))[id]");
  return [...fields].filter(({ value, defaultValue }) => value !== defaultValue);
}

async function checkLogin() {
  const answer = await fetch(`${ROOT}/`, { method: "HEAD", cache: "no-store" }).catch(() => null);
  if (answer?.status === 401) location.assign(`${ROOT}/login`);
}

/** Keeps what was typed for the next time this is loaded, and returns what was; if that is allowed. */
function keep(typed) {
  try {
    const before = sessionStorage.getItem(TYPED);
    sessionStorage.setItem(TYPED, typed);
    return before;
  } catch {
    return null;
  }
}

for (const [id, value] of JSON.parse(keep("[]") ?? "[]")) {
  const field = document.getElementById(id);
  if (field) field.value = value;
}
addEventListener("submit", () => {
  isLeaving = true;
  setTimeout(() => (isLeaving = false), LONGEST_DELAY);
});
addEventListener("pageshow", ({ persisted }) => persisted && drawAgain());
connect();
