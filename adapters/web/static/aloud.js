// Reads replies aloud with the voices of this device: no word of them leaves it.

import { language, t } from "./strings.js";

const HAN = /[\u3400-\u9fff]/u;
const UNSAID = "pre, .code, .code-bar, table, math, .sources, button"; // code and tables say nothing

const speech = window.speechSynthesis;
let reading = null; // the button of what is being read

/** Puts a button below every reply in a language that this device has a voice for. */
export function readAloud() {
  if (!speech) return;
  const log = document.getElementById("log");
  const offer = () => log.querySelectorAll(".line.bot:not(:has(.aloud)) .actions").forEach(add);
  new MutationObserver(offer).observe(log, { childList: true });
  speech.addEventListener?.("voiceschanged", offer); // some browsers find them late
  addEventListener("pagehide", () => speech.cancel());
  offer();
}

function add(group) {
  const line = group.closest(".line");
  const body = line.querySelector(".body");
  if (body.hidden || !voiceFor(body.textContent)) return;
  const button = document.createElement("button");
  button.type = "button";
  button.className = "aloud";
  button.textContent = t("aloud");
  button.addEventListener("click", () => {
    const isOwn = reading === button;
    stop();
    if (!isOwn) read(body, button);
  });
  group.append(button);
}

function read(body, button) {
  const copy = body.cloneNode(true);
  for (const part of copy.querySelectorAll(UNSAID)) part.remove();
  const parts = [...copy.children].map((part) => part.textContent.trim()).filter(Boolean);
  if (!parts.length) return;
  reading = button;
  button.textContent = t("aloud.stop");
  for (const [number, words] of parts.entries()) {
    const said = new SpeechSynthesisUtterance(words);
    said.voice = voiceFor(words) ?? voiceFor(body.textContent);
    said.lang = said.voice.lang;
    if (number === parts.length - 1) said.onend = () => reading === button && stop();
    said.onerror = () => reading === button && stop();
    speech.speak(said);
  }
}

function stop() {
  const button = reading;
  reading = null; // first: what is cancelled ends with an error
  speech.cancel();
  if (button) button.textContent = t("aloud");
}

/** A voice of this device for what is said; some browsers offer others, which hear it elsewhere. */
function voiceFor(words) {
  const wanted = HAN.test(words) ? "zh" : language === "zh" ? "en" : language;
  const voices = speech.getVoices().filter((voice) => voice.localService);
  const own = voices.filter(({ lang }) => lang.toLowerCase().startsWith(wanted));
  return own.find((voice) => voice.default) ?? own[0];
}
