// Requests to the server that gave this page.

export class Refused extends Error {
  // errors: words by field
  constructor(errors, status) {
    super(Object.values(errors).join("; "));
    this.errors = errors;
    this.status = status;
  }
}

async function answer(response, form) {
  if (response.ok) { return form === "text" ? response.text() : response.json(); }
  let errors = { request: `the server answered ${response.status}.` };
  try { errors = (await response.json()).errors || errors; } catch { /* not JSON: the status says it */ }
  throw new Refused(errors, response.status);
}

export async function get(path, form) {
  return answer(await reach(path, {}), form);
}

export async function post(path, body, signal) {
  const headers = { "content-type": "application/json" };
  return answer(await reach(path, { method: "POST", headers, body: JSON.stringify(body), signal }));
}

async function reach(path, options) {
  try {
    return await fetch(path, options);
  } catch (error) {
    if (error.name === "AbortError") { throw error; }
    throw new Refused({ request: "the server does not answer; is `rackplan serve` still running?" }, 0);
  }
}

// Asks for the latest of several questions: one is on its way at a time, and those between are left out.
export class Latest {
  constructor(ask, show, refuse) {
    this.ask = ask;
    this.show = show;
    this.refuse = refuse;
    this.next = null;
    this.busy = false;
  }

  async want(question) {
    this.next = { question };
    if (this.busy) { return; }
    this.busy = true;
    while (this.next) {
      const { question: now } = this.next;
      this.next = null;
      try {
        const found = await this.ask(now);
        if (!this.next) { await this.show(found, now); }
      } catch (error) {
        if (!this.next) { this.refuse(error); }
      }
    }
    this.busy = false;
  }
}
