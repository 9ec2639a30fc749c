// What was said before the lines that are shown: asked for when the reader comes near the top.

const NEAR = 800; // px from the top
const MOST = 300; // lines that stay when the reader is back at the end

export class Older {
  #scroll = document.getElementById("scroll");
  #button = document.getElementById("older");
  #log;
  #askFor;
  #before = "";
  #isAsked = false;

  /** `askFor` asks for what stands before a place, and says whether it could. */
  constructor(log, askFor) {
    this.#log = log;
    this.#askFor = askFor;
    this.#button.addEventListener("click", () => this.#ask());
    this.#scroll.addEventListener("scroll", () => this.#look(), { passive: true });
  }

  /** A conversation is shown; `before` is where it goes on upwards, empty where it begins. */
  begin(before) {
    this.#isAsked = false;
    this.#goOn(before);
  }

  /** Puts what was asked for above the rest; the view stays where it is. */
  take({ items, before }) {
    if (!this.#isAsked) return; // another conversation is shown by now
    this.#isAsked = false;
    this.#log.prepend(items);
    this.#goOn(before);
    this.#look();
  }

  /** The bot could not read it, or is gone: it may be asked again. */
  release() {
    this.#isAsked = false;
  }

  #goOn(before) {
    this.#before = before ?? "";
    this.#button.hidden = !this.#before;
  }

  #look() {
    const { scrollTop, scrollHeight, clientHeight } = this.#scroll;
    if (scrollTop < NEAR && scrollHeight > clientHeight) this.#ask();
    else if (scrollHeight - scrollTop - clientHeight < 2) this.#trim();
  }

  #ask() {
    if (!this.#before || this.#isAsked) return;
    this.#isAsked = true;
    Promise.resolve(this.#askFor(this.#before)).then((asked) => asked || this.release());
  }

  /** Whoever is back at the end does not need all that they read on the way. */
  #trim() {
    if (this.#isAsked) return;
    const before = this.#log.trim(MOST);
    if (before) this.#goOn(before);
  }
}
