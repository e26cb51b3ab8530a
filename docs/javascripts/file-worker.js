// Search works from file:// too: browsers start no worker there, so a hidden frame stands in for the search worker.
// A script that the worker asks for (the index, a language) is loaded before the messages that need it are answered.
if (window.location.protocol === "file:") {
  window.Worker = class extends EventTarget {
    constructor(url) {
      super();
      this.onmessage = null;
      this.frame = document.createElement("iframe");
      this.frame.hidden = true;
      document.body.appendChild(this.frame);
      const inside = this.frame.contentWindow;
      window.addEventListener("message", (event) => {
        if (event.source !== inside) return;
        const heard = new MessageEvent("message", { data: event.data });
        this.dispatchEvent(heard);
        if (this.onmessage) this.onmessage(heard);
      });
      inside.document.open();
      inside.document.write(`<html><body><script>
        window.postMessage = (data) => parent.postMessage(data, "*");
        window.importScripts = (...urls) => urls.reduce((before, one) => before.then(() => new Promise((done, failed) => {
          const script = document.createElement("script");
          script.src = one;
          script.onload = done;
          script.onerror = failed;
          document.body.appendChild(script);
        })), Promise.resolve());
      <\/script><script src="${url}"><\/script></body></html>`);
      inside.document.close();
      this.ready = new Promise((done) => { this.frame.addEventListener("load", done, { once: true }); });
      this.send = Window.prototype.postMessage || inside.postMessage;
    }

    postMessage(data) {
      this.ready = this.ready.then(() => {
        const heard = new MessageEvent("message", { data });
        this.frame.contentWindow.dispatchEvent(heard);
      });
    }

    terminate() { this.frame.remove(); }
  };
}
