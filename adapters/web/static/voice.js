// Records a voice message, which goes to the bot as a file and is sent once it is there.

import { t } from "./strings.js";

const LONGEST = 10 * 60; // s
const RATE = 32_000; // bits per second: enough for speech
// What a browser can make of these, the first: every service of speech reads them.
const KINDS = ["audio/webm;codecs=opus", "audio/ogg;codecs=opus", "audio/mp4"];

/** Shows the button where this browser can record; tells "recorded" with the file. */
export class Recorder extends EventTarget {
  #button = document.getElementById("record");
  #bar = document.getElementById("recording");
  #time = document.getElementById("recording-time");
  #recorder = null;
  #isAsking = false; // the browser asks for the microphone
  #isKept = false; // whether what is recorded is sent
  #timer = 0;

  constructor() {
    super();
    // Browsers offer the microphone to pages over https and on this machine alone.
    if (!navigator.mediaDevices?.getUserMedia || !window.MediaRecorder || !kind()) return;
    this.#button.hidden = false;
    this.#button.addEventListener("click", () => (this.#recorder ? this.#end(true) : this.#begin()));
    document.getElementById("recording-end").addEventListener("click", () => this.#end(false));
    document.addEventListener(
      "keydown",
      (event) => {
        if (event.key !== "Escape" || !this.#recorder) return;
        event.preventDefault(); // it stops no reply
        this.#end(false);
      },
      { capture: true },
    );
  }

  async #begin() {
    if (this.#isAsking) return;
    this.#isAsking = true;
    let stream;
    try {
      stream = await navigator.mediaDevices.getUserMedia({ audio: true });
    } catch (error) {
      const key = error.name === "NotFoundError" ? "voice.none" : "voice.denied";
      this.dispatchEvent(new CustomEvent("problem", { detail: t(key) }));
      return;
    } finally {
      this.#isAsking = false;
    }
    const parts = [];
    const recorder = new MediaRecorder(stream, { mimeType: kind(), audioBitsPerSecond: RATE });
    this.#recorder = recorder;
    recorder.addEventListener("dataavailable", ({ data }) => parts.push(data));
    recorder.addEventListener("stop", () => {
      for (const track of stream.getTracks()) track.stop();
      this.#over(parts);
    });
    recorder.start(1_000);
    const begun = Date.now();
    this.#tick(begun);
    this.#timer = setInterval(() => this.#tick(begun), 500);
    this.#show(true);
  }

  #tick(begun) {
    const seconds = Math.floor((Date.now() - begun) / 1_000);
    this.#time.textContent = `${Math.floor(seconds / 60)}:${String(seconds % 60).padStart(2, "0")}`;
    if (seconds >= LONGEST) this.#end(true);
  }

  #end(isKept) {
    this.#isKept = isKept;
    if (this.#recorder.state !== "inactive") this.#recorder.stop();
  }

  #over(parts) {
    clearInterval(this.#timer);
    const type = this.#recorder.mimeType.split(";")[0];
    this.#recorder = null;
    this.#show(false);
    const blob = new Blob(parts, { type });
    if (!this.#isKept || !blob.size) return;
    this.#isKept = false;
    const file = new File([blob], `${t("voice")}.${type.replace("audio/", "")}`, { type });
    this.dispatchEvent(new CustomEvent("recorded", { detail: file }));
  }

  #show(on) {
    this.#bar.hidden = !on;
    this.#button.classList.toggle("on", on);
    this.#button.setAttribute("aria-label", t(on ? "voice.send" : "voice.record"));
  }
}

function kind() {
  return KINDS.find((each) => MediaRecorder.isTypeSupported(each));
}
