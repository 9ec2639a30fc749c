// The conversation as it is seen: lines, days, drafts, and where the view stands.

import { actions, copyText, isAsked, linkSources, offer, versions } from "./actions.js";
import { Doing, folded } from "./doing.js";
import { choices, files, folds, pressedOn, pressId, settle, sources, unsettle } from "./extras.js";
import { sent } from "./files.js";
import { dates, t } from "./strings.js";

const NEAR = 48; // px from the end that still count as being at the end
const TYPING_TIME = 6_000; // ms a "writing" sign stands without news
const ACTIVITY_TIME = 20_000; // ms what was saved stays in sight
const BEGINS = 5_000; // ms after which a question is being answered, or nobody knows
const DRAFT_GRACE = 300; // ms a withdrawn draft stays, as its message usually follows at once

const BESIDE = new Set(["saving", "summarising"]); // what is done beside the replies

let name = "Confidant"; // what the bot is called

const clock = dates({ hour: "numeric", minute: "2-digit" });
const exact = dates({ dateStyle: "full", timeStyle: "medium" });
const thisYear = dates({ weekday: "long", day: "numeric", month: "long" });
const otherYear = dates({ dateStyle: "long" });

export class Log extends EventTarget {
  #scroll = document.getElementById("scroll");
  #lines = document.getElementById("log");
  #tail = document.getElementById("tail");
  #typing = document.getElementById("typing");
  #activity = document.getElementById("activity");
  #doing = new Doing(); // what goes on on the way to a reply …
  #newer = document.getElementById("newer");
  #empty = document.getElementById("empty");
  #queue = document.getElementById("queue"); // messages that are answered after the current one
  #byId = new Map();
  #extras = new Map(); // what came with a line: a bot that was restarted no longer knows
  #said = new Map(); // what the person said, by id
  #texts = new Map(); // what lines say, by id
  #offered = null; // to ask again what was not answered, or to go on
  #drafts = new Map();
  #lastDay = "";
  #askedAt = 0; // when something was asked of which no answer has come, in ms
  #atEnd = true;
  #endTop = 0; // where the view stood when it was last brought to the end
  #typingTimer = 0;
  #writing = false;
  #beside = new Map(); // … and beside the replies, by id
  #activityTimer = 0;

  constructor() {
    super();
    this.#scroll.addEventListener("scroll", () => this.#look(), { passive: true });
    this.#newer.addEventListener("click", () => this.toEnd());
    this.#doing.addEventListener("change", () => {
      this.#tellWriting();
      if (this.#atEnd) this.toEnd();
    });
    // Whatever changes the sizes (streaming, a growing composer), the end stays in view.
    const sizes = new ResizeObserver(() => this.#atEnd && this.toEnd());
    sizes.observe(this.#scroll);
    sizes.observe(this.#scroll.firstElementChild);
  }

  /** Calls the bot what it is called. */
  call(bot) {
    name = bot;
    for (const who of this.#scroll.querySelectorAll(".line.bot > h2")) who.textContent = bot;
    document.getElementById("typing-who").textContent = t("typing", { name });
  }

  /** Greets whoever looks by what they are called, where that is known. */
  greet(called) {
    if (called) this.#empty.querySelector("h2").textContent = t("empty.greeting", { name: called });
  }

  has(id) {
    return this.#byId.has(id);
  }

  /** Shows a whole conversation in place of what is there. */
  reset(items) {
    const fromEnd = this.#scroll.scrollHeight - this.#scroll.scrollTop;
    this.#lines.setAttribute("aria-live", "off"); // a reload is not read aloud
    this.#lines.replaceChildren();
    this.#queue.replaceChildren();
    this.#byId.clear();
    this.#said.clear();
    this.#texts.clear();
    this.#lastDay = "";
    this.clearDrafts();
    const known = this.#extras;
    this.#extras = new Map();
    for (const item of items) this.#append({ ...known.get(item.id), ...item });
    if (this.#atEnd) this.toEnd();
    else this.#scroll.scrollTop = this.#scroll.scrollHeight - fromEnd;
    setTimeout(() => this.#lines.setAttribute("aria-live", "polite"), 200);
  }

  /** Shows what was said before all that is there; the view stays on what it shows. */
  prepend(items) {
    const { scrollHeight, scrollTop } = this.#scroll;
    const [lines, lastDay] = [this.#lines, this.#lastDay];
    const above = document.createDocumentFragment();
    lines.setAttribute("aria-live", "off"); // nothing of it is news
    this.#lines = above;
    this.#lastDay = "";
    for (const item of items) if (!this.has(item.id)) this.#append(item, { isNews: false });
    const first = lines.firstElementChild;
    if (above.lastElementChild && first?.dataset.day === this.#lastDay) first.remove();
    this.#lines = lines;
    this.#lastDay = lastDay;
    lines.prepend(above);
    this.#scroll.scrollTop = scrollTop + this.#scroll.scrollHeight - scrollHeight;
    setTimeout(() => lines.setAttribute("aria-live", "polite"), 200);
  }

  /** Drops the oldest lines beyond so many; where what stands before the rest goes on, or "". */
  trim(most) {
    const lines = [...this.#lines.children];
    const kept = lines.findIndex((line, at) => line.dataset.place && at >= lines.length - most);
    if (lines.length <= 2 * most || kept < 1) return "";
    const gone = new Set(lines.slice(0, kept));
    for (const [id, line] of this.#byId) {
      if (!gone.has(line)) continue;
      this.#dropLine(id);
    }
    for (const line of gone) line.remove();
    this.toEnd();
    return lines[kept].dataset.place;
  }

  /** Some of what was said is forgotten: `items` are what there is, and no line keeps more. */
  forget(items) {
    const now = new Map(items.map((item) => [item.id, item]));
    const last = items.map(({ id }) => this.#byId.get(id)).filter(Boolean).at(-1);
    for (const more of this.#extras.values()) delete more.steps;
    for (const [id, line] of [...this.#byId]) {
      const item = now.get(id);
      if (item) {
        line.querySelector(".doing")?.remove();
        const used = line.querySelector(".sources");
        if (used && item.sources) used.replaceWith(sources(id, item.sources));
        else used?.remove();
        if (item.text !== this.#texts.get(id)) this.#redraw(line, item);
      } else if (last && follows(last, line)) {
        this.#dropLine(id); // what stands before all that is listed comes again
        line.remove();
      }
    }
    for (const rule of this.#lines.querySelectorAll(":scope > .rule")) {
      const isLast = !rule.nextElementSibling?.matches("article, .divider");
      if (isLast && !rule.matches(".divider")) rule.remove();
    }
    this.clearDrafts();
    this.clearActivities();
  }

  /** Whether there are no lines but these, and those that wait to be sent. */
  shows(items, waits) {
    const ids = new Set(items.filter(({ role }) => role !== "divider").map(({ id }) => id));
    const shown = [...this.#byId.keys()];
    return shown.every((id) => ids.has(id) || waits(id)) && [...ids].every((id) => this.has(id));
  }

  #redraw(line, item) {
    const controls = (within) => [...within.querySelectorAll("button, a, summary")];
    const focused = controls(line).indexOf(document.activeElement);
    if (!item.text) this.#extras.delete(item.id);
    const drawn =
      item.role === "divider" ? this.#divide(item) : this.#draw(item, line.previousElementSibling);
    line.replaceWith(drawn);
    if (focused >= 0) (controls(drawn)[focused] ?? document.getElementById("message")).focus();
    const pressed = this.#said.get(pressId(item.id));
    const group = this.#choicesOf(item.id);
    if (pressed && group) settle(group, pressed.text);
  }

  #dropLine(id) {
    for (const kept of [this.#byId, this.#said, this.#texts]) kept.delete(id);
  }

  /** Takes a line away: a command whose answer is a sentence between the lines. */
  remove(id) {
    this.#byId.get(id)?.remove();
    this.#dropLine(id);
  }

  /** Adds one line, unless it is there already. */
  add(item) {
    if (this.has(item.id)) return false;
    const isBehind =
      this.#writing || this.#queue.childElementCount > 0 || Date.now() - this.#askedAt < BEGINS;
    for (const id of item.answers ?? []) this.#begin(id);
    this.#append(isBehind && isAsked(item) ? { ...item, waits: true } : item);
    this.#askedAt = isAsked(item) ? Date.now() : 0;
    if (item.answers) this.#beginNext();
    this.#follow(item.role === "user" && item.mine);
    return true;
  }

  /** Says how a message of this page is doing: "sending", "waiting", "refused", or "" for fine. */
  mark(id, state, detail = "") {
    const line = this.#byId.get(id);
    if (!line) return;
    const shown = state || (line.parentElement === this.#queue ? "queued" : "");
    line.dataset.state = shown;
    const note = line.querySelector(".note");
    note.textContent = detail || (shown && t(shown));
    note.hidden = !note.textContent;
    const group = this.#choicesOf(pressedOn(id));
    if (state === "refused" && group) unsettle(group);
  }

  draft(id, html) {
    const draft = this.#drafts.get(id) ?? { line: article("bot", "draft"), timer: 0 };
    clearTimeout(draft.timer);
    if (!html) {
      this.#doing.end(id);
      draft.timer = setTimeout(() => this.#drop(id), DRAFT_GRACE);
      return;
    }
    this.#drafts.set(id, draft);
    this.typing(false);
    const body = draft.line.querySelector(".body");
    body.innerHTML = html; // made safe by the server
    decorate(body);
    if (!draft.line.isConnected) this.#tail.append(draft.line);
    this.#tellWriting();
    this.updateEmpty();
    this.#follow();
  }

  /** Takes drafts away that a message stands in for. */
  replace(ids) {
    for (const id of ids) this.#drop(id);
  }

  /** Folds what was done on the way to a reply above it, where the keyboard goes on. */
  finish({ id, draft }) {
    const wasFocused = this.#doing.isFocused;
    this.#doing.end(draft);
    if (wasFocused) this.#byId.get(id)?.querySelector("summary")?.focus();
  }

  /** The drafts of the replies that are under way. */
  get writing() {
    return [...this.#drafts.keys(), this.#doing.draft].filter(Boolean);
  }

  clearDrafts() {
    this.#askedAt = 0;
    this.#drafts.clear();
    this.#tail.replaceChildren();
    this.typing(false);
  }

  typing(on) {
    clearTimeout(this.#typingTimer);
    this.#typing.hidden = !on || this.#drafts.size > 0;
    this.#tellWriting();
    if (!on) return;
    this.#typingTimer = setTimeout(() => this.typing(false), TYPING_TIME);
    this.#follow();
  }

  /** Says quietly what goes on, and for a while what was saved. */
  activity(told) {
    const { id, what, state, where } = told;
    if (!BESIDE.has(what)) {
      this.#doing.take(told);
      return;
    }
    clearTimeout(this.#activityTimer);
    if (state === "begun") this.#beside.set(id, t(`activity.${what}`));
    else this.#beside.delete(id);
    const going = [...this.#beside.values()].at(-1) ?? "";
    const saved = where ? t("activity.saved", { where }) : "";
    this.#tellActivity(going || saved);
    if (!going && saved) {
      this.#activityTimer = setTimeout(() => this.#tellActivity(""), ACTIVITY_TIME);
    }
  }

  clearActivities() {
    this.#doing.clear();
    this.#beside.clear();
    clearTimeout(this.#activityTimer);
    this.#tellActivity("");
  }

  #tellActivity(words) {
    this.#activity.textContent = words;
    this.#activity.hidden = !words;
    if (words && this.#atEnd) this.toEnd();
  }

  /** Says whether a reply is under way, and could be stopped. */
  #tellWriting() {
    const on = this.#drafts.size > 0 || !this.#typing.hidden || this.#doing.on;
    if (on === this.#writing) return;
    this.#writing = on;
    if (!on) this.#beginNext();
    this.dispatchEvent(new CustomEvent("writing", { detail: on }));
  }

  toEnd() {
    this.#scroll.scrollTop = this.#empty.hidden ? this.#scroll.scrollHeight : 0;
    this.#endTop = this.#scroll.scrollTop;
    this.#atEnd = true;
    this.#newer.hidden = true;
  }

  /** Scrolls by most of a page: the reading keys work from the message box too. */
  page(direction) {
    this.#scroll.scrollBy({ top: direction * this.#scroll.clientHeight * 0.85 });
  }

  #drop(id) {
    this.#drafts.get(id)?.line.remove();
    this.#drafts.delete(id);
    this.#tellWriting();
    this.updateEmpty();
  }

  #append(item, { isNews = true } = {}) {
    if (isNews) this.#withdraw();
    if (item.role === "divider") {
      this.#lines.append(this.#divide(item));
    } else if (item.waits) {
      this.#enqueue(item);
    } else {
      if (item.stopped) this.#dropStop();
      this.#startDay(item.at);
      const line = this.#draw(item);
      if (isNews && item.failed) this.#offer(item, line);
      if (isNews && item.stopped) this.#offerMore(line);
      this.#lines.append(line);
      const group = this.#choicesOf(pressedOn(item.id));
      if (group) settle(group, item.text);
    }
    this.updateEmpty();
  }

  /** Shows below all else what is answered once its turn has come; until then it can be taken back. */
  #enqueue(item) {
    const line = this.#draw(item);
    const back = offer("take_back", () => {
      this.dispatchEvent(new CustomEvent("withdraw", { detail: item }));
    });
    back.className = "take-back";
    line.querySelector(".actions").before(back);
    this.#queue.append(line);
    this.mark(item.id, "");
  }

  /** A message that waited is being answered. */
  #begin(id) {
    const line = this.#byId.get(id);
    if (line?.parentElement !== this.#queue) return;
    this.#startDay(this.#said.get(id).at);
    this.#lines.append(line);
    this.mark(id, line.dataset.state === "queued" ? "" : line.dataset.state);
    line.querySelector(".take-back").remove();
  }

  /** Once nothing is being written, it is the turn of the first that waits. */
  #beginNext() {
    setTimeout(() => {
      const first = this.#queue.firstElementChild;
      if (!first || this.#writing) return;
      this.#begin([...this.#byId].find(([, line]) => line === first)[0]);
    });
  }

  /** What a command was answered, as a sentence between the lines. */
  #divide({ id, text }) {
    const line = rule("divider", text.replaceAll("`", "") || t("forgotten"));
    this.#byId.set(id, line);
    this.#texts.set(id, text);
    return line;
  }

  /** That a reply was stopped stands below it, also where that is a line of its own. */
  #dropStop() {
    let line = this.#lines.lastElementChild;
    if (line?.matches(".bot")) line = line.previousElementSibling;
    if (!line?.matches(".divider")) return;
    for (const [id, known] of this.#byId) if (known === line) this.#dropLine(id);
    line.remove();
  }

  /** Where the keyboard goes on once another version of a message is shown. */
  focusVersion(id, way) {
    const group = this.#byId.get(id)?.querySelector(".versions");
    const wanted = group?.querySelector(`[data-way="${way}"]:enabled`);
    (wanted ?? group?.querySelector(":enabled"))?.focus();
  }

  /** What a person asked before a line, the last of which it answers; nothing for a command. */
  #askedBefore(line) {
    while (line && !line.matches(".line.user")) line = line.previousElementSibling;
    const said = [...this.#said.values()].find(({ id }) => line && this.#byId.get(id) === line);
    return said && isAsked(said) && (said.text || said.files?.length) ? said : null;
  }

  /** The line of what was said, to stand behind another one. */
  #draw(item, before = this.#lines.lastElementChild) {
    const line = article(item.role);
    const body = line.querySelector(".body");
    if (item.role === "bot") {
      body.innerHTML = item.html; // made safe by the server
      decorate(body);
      if (body.querySelector("code.language-mermaid")) {
        import("./diagrams.js").then(({ draw }) => draw(body));
      }
      this.#addExtras(item, body);
      if (item.sources && item.text) {
        line.querySelector(".meta").before(sources(item.id, item.sources));
      }
      if (item.stopped) body.lastElementChild?.classList.add("stopped");
    } else {
      body.textContent = item.text;
      body.after(...folds(body));
      if (item.files?.length) body.after(sent(item.files));
    }
    const brings = item.role === "user" ? item.files : item.attachments;
    body.hidden = !item.text && brings?.length > 0;
    if (!item.text && !body.hidden) body.textContent = t("forgotten");
    const tell = (name, detail) => this.dispatchEvent(new CustomEvent(name, { detail }));
    const asked = item.role === "bot" && this.#askedBefore(before);
    line.querySelector(".meta").append(actions(item, asked, tell), ...versions(item, tell));
    const time = line.querySelector("time");
    const at = new Date(item.at);
    time.dateTime = at.toISOString();
    time.textContent = clock.format(at);
    time.title = exact.format(at);
    if (item.place) line.dataset.place = item.place;
    this.#byId.set(item.id, line);
    this.#texts.set(item.id, item.text);
    if (item.role === "user") this.#said.set(item.id, item);
    return line;
  }

  #addExtras({ id, text, buttons, attachments, steps }, body) {
    if (!buttons && !attachments && !steps?.length) return;
    this.#extras.set(id, { buttons, attachments, steps });
    if (steps?.length && text) body.before(folded(steps)); // nothing of what was forgotten
    if (attachments) body.after(files(attachments));
    if (!buttons) return;
    const press = (command) => {
      this.dispatchEvent(new CustomEvent("press", { detail: { on: id, command } }));
    };
    body.parentElement.querySelector(".meta").before(choices(buttons, press));
  }

  /** Offers to ask again what was not answered, until there is news. */
  #offer({ id, failed }, line) {
    const asked = failed.map((each) => this.#said.get(each));
    if (asked.includes(undefined)) return;
    const text = asked.map((each) => each.text).filter(Boolean).join("\n\n");
    const files = asked.flatMap((each) => each.files ?? []).filter((file) => !file.gone);
    if (!text && !files.length) return;
    const press = () => {
      this.dispatchEvent(new CustomEvent("retry", { detail: { on: id, text, files } }));
    };
    this.#offered = offer("try_again", press);
    line.querySelector(".meta").before(this.#offered);
  }

  /** Offers to go on where a reply was stopped, until there is news. */
  #offerMore(line) {
    this.#offered = offer("continue", () => this.dispatchEvent(new CustomEvent("more")));
    line.querySelector(".stopped")?.append(this.#offered);
  }

  #withdraw() {
    this.#offered?.remove();
    this.#offered = null;
  }

  #choicesOf(id) {
    return id ? this.#byId.get(id)?.querySelector(".choices") : null;
  }

  #startDay(at) {
    const day = new Date(at).toDateString();
    if (day === this.#lastDay) return;
    this.#lastDay = day;
    const node = rule("day", nameOfDay(new Date(at)));
    node.dataset.day = day;
    this.#lines.append(node);
  }

  #follow(always = false) {
    if (always || (this.#atEnd && !this.#leaving())) this.toEnd();
    else this.#newer.hidden = false;
  }

  /** Whether the reader has just scrolled up, which the page is told only with its next frame. */
  #leaving() {
    const { scrollHeight, scrollTop, clientHeight } = this.#scroll;
    return scrollTop < this.#endTop - NEAR && scrollHeight - scrollTop - clientHeight >= NEAR;
  }

  #look() {
    const { scrollHeight, scrollTop, clientHeight } = this.#scroll;
    if (scrollHeight - scrollTop - clientHeight < NEAR) {
      this.#atEnd = true;
      this.#endTop = scrollTop;
      this.#newer.hidden = true;
    } else if (scrollTop < this.#endTop) {
      this.#atEnd = false; // else what is there has grown, such as by a picture, and nobody left
    }
  }

  /** An empty conversation says what this is. */
  updateEmpty() {
    const isBegun =
      this.#lines.querySelector(".line") || this.#drafts.size + this.#queue.childElementCount > 0;
    this.#empty.hidden = Boolean(isBegun);
  }
}

/** True when the one stands behind the other. */
function follows(one, other) {
  return Boolean(other.compareDocumentPosition(one) & Node.DOCUMENT_POSITION_FOLLOWING);
}

function article(role, extra = "") {
  const line = document.createElement("article");
  line.className = `line ${role} ${extra}`.trim();
  const who = document.createElement("h2");
  who.className = "unseen";
  who.textContent = role === "user" ? t("you") : name;
  const body = document.createElement("div");
  body.className = "body";
  body.dir = "auto"; // Arabic and Hebrew begin at the right
  const foot = document.createElement("p");
  foot.className = "meta";
  const note = document.createElement("span");
  note.className = "note";
  note.hidden = true;
  foot.append(note, document.createElement("time"));
  line.append(who, body, foot);
  return line;
}

function rule(kind, text) {
  const node = document.createElement("div");
  node.className = `rule ${kind}`;
  const label = document.createElement("span");
  label.textContent = text;
  node.append(label);
  return node;
}

function nameOfDay(day) {
  const now = new Date();
  const yesterday = new Date(now.getFullYear(), now.getMonth(), now.getDate() - 1);
  if (day.toDateString() === now.toDateString()) return t("today");
  if (day.toDateString() === yesterday.toDateString()) return t("yesterday");
  return (day.getFullYear() === now.getFullYear() ? thisYear : otherYear).format(day);
}

/** Leads from sources to where they stand, and gives code its copy button. */
function decorate(body) {
  linkSources(body);
  for (const frame of body.querySelectorAll(".code")) {
    const pre = frame.querySelector("pre");
    const bar = document.createElement("div");
    bar.className = "code-bar";
    const name = document.createElement("span");
    name.textContent = pre.querySelector("code")?.className.replace("language-", "") || t("code");
    const copy = document.createElement("button");
    copy.type = "button";
    copy.textContent = t("copy");
    copy.addEventListener("click", () => {
      copyText(pre.textContent, copy);
      copy.textContent = t("copied");
      setTimeout(() => (copy.textContent = t("copy")), 1500);
    });
    bar.append(name, copy);
    pre.before(bar);
  }
}
