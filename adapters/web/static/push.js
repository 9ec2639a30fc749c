// Tells of messages while the page is closed: the switch for that, and what was seen meanwhile.

import { worker } from "./install.js";
import { root } from "./root.js";
import { t } from "./strings.js";

const PLACE = `${root}/api/push`;
const box = document.getElementById("reach");
const away = document.getElementById("away");
const words = document.getElementById("away-words");
const state = document.getElementById("away-state");

/** Has the bot know which messages somebody can see: of others it tells while nobody is here. */
export function tellSeen(connection) {
  connection.addEventListener("frame", ({ detail: { type, role, id } }) => {
    if (type !== "message" || role !== "bot" || document.visibilityState !== "visible") return;
    connection.send({ type: "seen", id });
  });
}

let registration = null;
worker.then((found) => {
  registration = found;
  if (found && "PushManager" in window && "Notification" in window) begin();
});

async function begin() {
  const answer = await fetch(PLACE).catch(() => null);
  if (!answer?.ok) return;
  const { key, devices } = await answer.json();
  const mine = await registration.pushManager.getSubscription();
  const id = mine && (await digest(mine.endpoint));
  const device = devices.find((each) => each.id === id);
  if (mine && !device) await mine.unsubscribe(); // of somebody who used this browser before
  if (device && !device.is_current) await bring(mine, device.words);
  show(Boolean(device), Boolean(device?.words));
  away.addEventListener("click", () => once(isOn(away) ? stop : () => start(key, false)));
  words.addEventListener("click", () => once(() => start(key, !isOn(words))));
  box.hidden = false;
}

/** Asks the browser, which asks the person, and brings the bot what it says. */
async function start(key, withWords) {
  if ((await Notification.requestPermission()) !== "granted") return say(t("away.denied"));
  const mine =
    (await registration.pushManager.getSubscription()) ??
    (await registration.pushManager.subscribe({
      userVisibleOnly: true,
      applicationServerKey: key,
    }));
  if (!(await bring(mine, withWords))) return say(t("away.failed"));
  show(true, withWords);
  return say(t("away.on"));
}

async function stop() {
  const mine = await registration.pushManager.getSubscription();
  if (mine) {
    const id = await digest(mine.endpoint);
    const answer = await fetch(`${PLACE}/${id}`, { method: "DELETE" }).catch(() => null);
    const isGone = await mine.unsubscribe();
    if (!answer?.ok && !isGone) return say(t("away.failed"));
  }
  show(false, false);
  return say(t("away.off"));
}

async function bring(mine, withWords) {
  const body = JSON.stringify({ ...mine.toJSON(), words: withWords });
  const headers = { "Content-Type": "application/json" };
  const answer = await fetch(PLACE, { method: "POST", headers, body }).catch(() => null);
  return Boolean(answer?.ok);
}

/** Does one thing at a time; what goes wrong is told. */
async function once(action) {
  if (box.ariaBusy === "true") return;
  box.ariaBusy = "true";
  await action().catch(() => say(t("away.failed")));
  box.ariaBusy = "false";
}

function show(on, withWords) {
  away.setAttribute("aria-checked", String(on));
  words.setAttribute("aria-checked", String(withWords));
  words.hidden = !on;
}

function say(sentence) {
  state.textContent = sentence;
  state.hidden = false;
  state.scrollIntoView({ block: "nearest" });
}

function isOn(button) {
  return button.getAttribute("aria-checked") === "true";
}

async function digest(text) {
  const bytes = await crypto.subtle.digest("SHA-256", new TextEncoder().encode(text));
  return [...new Uint8Array(bytes)].map((byte) => byte.toString(16).padStart(2, "0")).join("");
}
