// Puts the parts of the page together.

import { Attachments } from "./files.js";
import { Composer } from "./composer.js";
import { ConnectModel } from "./connect.js";
import { Connection } from "./connection.js";
import { againId, isRedone, pressId, redoId } from "./extras.js";
import { Log } from "./log.js";
import { follow } from "./look.js";
import { ModelMenu } from "./models.js";
import { Older } from "./older.js";
import { Outbox } from "./outbox.js";
import { tellSeen } from "./push.js";
import { isTemporary, session } from "./storage.js";
import { language, locale, t, translate } from "./strings.js";
import { Talks } from "./talks.js";
import { showWays } from "./ways.js";

const LONGEST = 64 * 1024; // bytes of one message, as the server has it
const STARTERS = ["starter.1", "starter.2", "starter.3", "starter.4"];
const SHOW_TROUBLE = 1_200; // ms without a connection before it is worth a word
const RELOADED = "confidant.reloaded";

translate(document);

const log = new Log();
const attachments = new Attachments(document.getElementById("message"));
const composer = new Composer(attachments);
const models = new ModelMenu();
const connecting = new ConnectModel();
const { Temporary } = isTemporary ? await import("./temporary.js") : {};
const connection = isTemporary ? new Temporary() : new Connection(locale || language);
const outbox = new Outbox(connection, locale || language);
const talks = new Talks();
const older = new Older(log, (before) => askForOlder(before));
let reading = null; // the earlier conversation that is shown; `isContinued` once it goes on
let isWriting = false; // whether a reply is under way …
let takenBack = null; // a message that waits, and that its person wants back
let isStopping = false; // … and was told to end
let wanted = null; // the version that was asked for, and by which button
const left = new Set(); // drafts of replies in conversations that were left
const unread = new Set(); // ids of messages that came while the page was hidden
let botName = "Confidant"; // until the server has said what it is called
let known = false; // whether a history was seen since the page was loaded

// --- what comes from the bot ---

const frames = {
  commands({ items }) {
    composer.commands = items;
  },

  history({ items, before }) {
    // What came while the connection was lost is unread as well.
    if (known && !isElsewhere()) for (const item of items) noteUnread(item);
    known = true;
    connection.settle();
    session.set(RELOADED, "");
    showState("open");
    if (isElsewhere()) {
      outbox.restart(); // what is shown stays
      askForModels();
      return;
    }
    showAll(items, before);
    outbox.restart();
    askForModels();
  },

  switched({ items, before }) {
    if (isElsewhere()) return;
    showAll(items, before);
    if (wanted) log.focusVersion(...wanted);
    wanted = null;
  },

  forgotten({ items, before }) {
    talks.refresh();
    if (isElsewhere()) {
      readAgain(); // nobody knows here what of it is gone
      return;
    }
    if (reading) {
      toCurrent();
      return;
    }
    log.forget(items);
    older.begin(before);
    // The newest lines were deleted with their conversation, or one is back.
    if (!log.shows(items, (id) => outbox.has(id))) connection.again();
  },

  message(item) {
    talks.changed();
    noteUnread(item);
    if (isElsewhere()) {
      if (item.role === "user") outbox.remove(item.id);
      return;
    }
    if (item.aside) outbox.remove(item.aside);
    if (item.begins) {
      for (const id of log.writing) left.add(id);
      again(); // another conversation goes on: this is what it shows
      return;
    }
    log.replace(item.replaces);
    if (item.answers?.length && !item.answers.some((id) => log.has(id) || outbox.has(id))) {
      log.typing(false); // its conversation was left before it came
      log.finish(item);
      showBanner(t("late"));
      return;
    }
    if (item.role === "bot") {
      log.typing(false);
      askForModels(); // it may be the answer to /model, or say that another one stands in
    }
    if (item.aside) log.remove(item.aside);
    const isNew = log.add(item.aside ? { ...item, role: "divider" } : item);
    if (item.steps) log.finish(item);
    if (item.role === "user") {
      log.mark(item.id, "");
      outbox.remove(item.id);
    }
  },

  ack({ id }) {
    log.mark(id, "");
    outbox.remove(id);
  },

  draft({ id, html }) {
    if (!isElsewhere() && !left.has(id)) log.draft(id, html);
  },

  typing() {
    if (!isElsewhere()) log.typing(true);
  },

  withdrawn({ id }) {
    log.remove(id);
    log.updateEmpty();
    if (takenBack?.id !== id) return;
    if (!composer.text) composer.set(takenBack.text);
    takenBack = null;
  },

  activity(what) {
    if (!isElsewhere() && !left.has(what.draft)) log.activity(what);
  },

  models(found) {
    models.show(found);
  },

  older(found) {
    older.take(found);
  },

  error({ key, id }) {
    const sentence = t(`error.${key}`);
    wanted = null;
    if (key === "older") older.release();
    if (key === "version" && !session.get(RELOADED) && canKeep()) {
      location.reload();
    } else if (!id) {
      showBanner(sentence);
    } else if (key === "storage" || key === "unexpected") {
      log.mark(id, "waiting", sentence);
      outbox.retryLater(id);
    } else {
      if (!log.has(id)) showBanner(sentence);
      log.mark(id, "refused", sentence);
      const refused = outbox.items.find((item) => item.id === id);
      if (refused && !composer.text && !isRedone(id)) composer.set(refused.text);
      outbox.remove(id);
    }
  },
};

/** Shows the conversation that goes on, and what waits to be said in it. */
function showAll(items, before) {
  endReading();
  log.reset(items);
  older.begin(before);
  talks.refresh();
  for (const item of outbox.items) {
    if (log.has(item.id)) outbox.remove(item.id);
    else showMine(item);
  }
  log.updateEmpty();
}

tellSeen(connection); // before a frame may end the connection
connection.addEventListener("frame", ({ detail }) => frames[detail.type]?.(detail));

// --- what goes to the bot ---

composer.addEventListener("send", ({ detail: { text, edited } }) => {
  if (new TextEncoder().encode(text).length > LONGEST) {
    showBanner(t("error.too_long"));
    if (edited) composer.edit({ ...edited, text });
    else composer.set(text);
    return;
  }
  if (edited && !text.startsWith("/")) say(text, there(edited), { replaces: edited.id });
  else say(text, edited ? there(edited) : attachments.take());
});

log.addEventListener("edit", ({ detail }) => composer.edit(detail));

// Pressed twice, or on two pages, it is the same message as well.
log.addEventListener("again", ({ detail }) => {
  const id = redoId(detail);
  if (log.has(id)) return;
  say(detail.text, there(detail), { id, replaces: detail.id });
  composer.focus();
});

log.addEventListener("switch", ({ detail: id }) => {
  const way = document.activeElement?.dataset.way;
  if (connection.send({ type: "switch", id })) wanted = [id, way];
});

/** The files of a message that are still there. */
function there({ files = [] }) {
  return files.filter((file) => !file.gone);
}

log.addEventListener("withdraw", ({ detail }) => {
  takenBack = detail;
  connection.send({ type: "withdraw", id: detail.id });
  composer.focus();
});

log.addEventListener("more", () => {
  say(t("continue.words"));
  composer.focus();
});

// Pressed twice, or on two pages, it is the same message, which the bot takes once.
log.addEventListener("retry", ({ detail: { on, text, files } }) => {
  const id = againId(on);
  if (log.has(id)) return;
  say(text, files, { id });
  composer.focus();
});

log.addEventListener("writing", ({ detail }) => {
  isWriting = detail;
  if (!isWriting) isStopping = false;
  composer.writing(isWriting);
});

document.getElementById("stop").addEventListener("click", () => {
  stop();
  composer.focus();
});

document.addEventListener("keydown", (event) => {
  if (event.key !== "Escape" || event.defaultPrevented || event.isComposing) return;
  stop();
});

function stop() {
  if (!isWriting || isStopping) return;
  isStopping = true;
  tell("/stop");
}

log.addEventListener("press", ({ detail: { on, command } }) => {
  const id = pressId(on);
  if (outbox.has(id)) return;
  showMine(outbox.add(command, { id }));
  outbox.pump();
});

attachments.addEventListener("text", ({ detail }) => composer.insert(detail));
attachments.addEventListener("problem", ({ detail }) => showBanner(detail));

// A voice message goes out as soon as it is there, with what stands in the box.
attachments.addEventListener("spoken", () => document.getElementById("composer").requestSubmit());

models.addEventListener("choose", ({ detail: name }) => {
  tell(`/model ${name}`);
});

models.addEventListener("offer", ({ detail }) => connecting.offer(detail));

connecting.addEventListener("connected", () => {
  askForModels();
  composer.focus();
});

models.addEventListener("more", () => composer.set("/model "));

composer.addEventListener("page", ({ detail }) => log.page(detail));

document.getElementById("fresh").addEventListener("click", () => {
  toCurrent();
  tell("/new");
  composer.focus();
});

document.getElementById("starters").append(
  ...STARTERS.map((key) => {
    const item = document.createElement("li");
    const button = document.createElement("button");
    button.type = "button";
    button.textContent = t(key);
    button.addEventListener("click", () => {
      say(t(key));
      composer.focus();
    });
    item.append(button);
    return item;
  }),
);

// --- earlier conversations ---

const readingBar = document.getElementById("reading");

/** Shows an earlier conversation as it is now, of which something may be gone. */
async function readAgain() {
  const asked = reading;
  log.reset([]);
  older.begin("");
  const found = await talks.again(asked.id);
  if (reading !== asked) return;
  if (found === "gone" && asked.isEarlier) {
    document.getElementById("reading-text").textContent = t("talks.gone");
  } else if (!found || found === "gone") toCurrent();
  else show(found);
}

talks.addEventListener("open", ({ detail }) => show(detail));

function show(detail) {
  reading = { id: detail.id, isEarlier: detail.is_earlier, isContinued: false };
  log.clearDrafts();
  log.clearActivities();
  log.reset(detail.items);
  log.toEnd();
  older.begin(detail.before);
  talks.mark(detail.id);
  const key = detail.is_earlier ? "talks.reading" : "talks.elsewhere";
  document.getElementById("reading-text").textContent = t(key, detail);
  readingBar.hidden = false;
  if (detail.is_earlier) composer.focus();
}

talks.addEventListener("current", () => toCurrent());

document.getElementById("reading-end").addEventListener("click", () => {
  toCurrent();
  composer.focus();
});

/** Whether what is shown is not the conversation that goes on. */
function isElsewhere() {
  return reading !== null && !reading.isContinued;
}

function endReading() {
  reading = null;
  readingBar.hidden = true;
  talks.mark("");
}

/** Shows the conversation that goes on, as it is now. */
function toCurrent() {
  if (!reading) return;
  endReading();
  again();
}

/** Has the server say what the conversation is now. */
function again() {
  log.clearActivities();
  connection.again();
}

async function askForOlder(before) {
  if (!reading) return connection.send({ type: "older", before });
  const asked = reading;
  const found = await talks.before(asked.id, before);
  if (reading !== asked) return false;
  if (found) older.take(found);
  else older.release();
  return true;
}

/** Has the next message belong to what is shown. */
function goOn() {
  if (!isElsewhere()) return;
  if (!reading.isEarlier) {
    toCurrent(); // it took place elsewhere, and can only be read here
    return;
  }
  reading.isContinued = true;
  readingBar.hidden = true;
  showMine(outbox.add(`/continue ${reading.id}`, { isQuiet: true }));
}

/** Says something for the person, whatever stands in the box. */
function say(text, files = [], { id, isQuiet, replaces } = {}) {
  const inPlace = !isElsewhere() || reading.isEarlier; // else it can only be asked here
  goOn();
  if (connection.open) hideBanner();
  showMine(outbox.add(text, { id, files, isQuiet, replaces: inPlace ? replaces : "" }));
  outbox.pump();
}

/** Gives a command for the person, of which only the answer shows. */
function tell(command) {
  say(command, [], { isQuiet: true });
}

/** Notes that the page was loaded again, or a server of another version would have it do so for ever. */
function canKeep() {
  session.set(RELOADED, "1");
  return session.get(RELOADED) === "1";
}

function askForModels() {
  connection.send({ type: "models" });
}

function showMine({ id, text, at, files, isQuiet }) {
  if (isQuiet && connection.open) return; // else it shows that it waits
  log.add({ id, role: "user", text, at, files, mine: true });
  log.mark(id, connection.open ? "sending" : "waiting");
}

// --- how it is going ---

const banner = document.getElementById("banner");
const bannerText = document.getElementById("banner-text");
const bannerCount = document.getElementById("banner-count");
const retry = document.getElementById("banner-retry");
let troubleTimer = 0;
let countdown = 0;

retry.addEventListener("click", () => connection.retry());

connection.addEventListener("state", ({ detail: { state, delay } }) => {
  showState(state);
  if (state !== "closed") return;
  outbox.stop();
  older.release();
  log.clearDrafts();
  log.clearActivities();
  for (const { id } of outbox.items) log.mark(id, "waiting");
  const until = Date.now() + delay;
  clearInterval(countdown);
  const tell = () => {
    const seconds = Math.ceil((until - Date.now()) / 1000);
    bannerCount.textContent = seconds > 1 ? t("banner.in", { seconds }) : "";
  };
  countdown = setInterval(tell, 1000);
  // A short gap is not worth a word; a longer one is told once and then kept up to date.
  troubleTimer ||= setTimeout(() => {
    showBanner(t("banner.closed"), { withRetry: true });
    tell();
  }, known ? SHOW_TROUBLE : 0);
});

function showState(state) {
  const node = document.getElementById("state");
  node.dataset.state = state;
  document.getElementById("state-text").textContent = t(`state.${state}`);
  if (state !== "open") return;
  clearTimeout(troubleTimer);
  clearInterval(countdown);
  troubleTimer = 0;
  hideBanner();
}

function showBanner(text, { withRetry = false } = {}) {
  bannerText.textContent = text;
  retry.hidden = bannerCount.hidden = !withRetry;
  banner.hidden = false;
}

function hideBanner() {
  banner.hidden = true;
}

/** Counts in the title what nobody has seen yet. */
function noteUnread({ id, role }) {
  if (role !== "bot" || !document.hidden || log.has(id) || unread.has(id)) return;
  unread.add(id);
  showTitle();
}

function showTitle() {
  document.title = unread.size ? `(${unread.size}) ${botName}` : botName;
}

document.addEventListener("visibilitychange", () => {
  if (document.hidden) return;
  unread.clear();
  showTitle();
});

if (isTemporary) document.getElementById("message").placeholder = t("message");
callIt(botName);
connection.retry();
showWays().then((found) => {
  if (!found) return;
  follow(found.language);
  attachments.restore(found.visitor);
  callIt(found.bot);
  log.greet(found.called);
  if (found.hears && !isTemporary) offerVoice();
  models.settings = found.ways.some(({ path }) => path === "/settings");
});

async function offerVoice() {
  const { Recorder } = await import("./voice.js");
  const recorder = new Recorder();
  recorder.addEventListener("problem", ({ detail }) => showBanner(detail));
  recorder.addEventListener("recorded", ({ detail }) => {
    attachments.add([detail], { voice: true });
    composer.focus();
  });
}

import("./aloud.js").then(({ readAloud }) => readAloud());

function callIt(name) {
  botName = name;
  document.getElementById("name").textContent = name;
  log.call(name);
  showTitle();
}
