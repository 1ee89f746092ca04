// Search in a page that was opened as a file: browsers start no worker there, so its script runs in an iframe.
if (location.protocol === "file:") {
  window.IFrameWorker = class extends EventTarget {
    constructor(url) {
      super();
      const frame = document.createElement("iframe");
      frame.hidden = true;
      document.body.appendChild(frame);
      const inner = frame.contentWindow;
      this.send = inner.postMessage.bind(inner); // before the script gets its own
      window.addEventListener("message", (event) => {
        if (event.source !== inner) return;
        const message = new MessageEvent("message", { data: event.data });
        this.dispatchEvent(message);
        if (this.onmessage) this.onmessage(message);
      });
      this.ready = new Promise((resolve) => {
        const scripts = [document.createElement("script"), document.createElement("script")];
        scripts[0].textContent = "postMessage = (data) => parent.postMessage(data, '*')";
        scripts[1].src = url;
        scripts[1].onload = resolve;
        inner.document.body.append(...scripts);
      });
    }

    postMessage(data) {
      this.ready.then(() => this.send(data, "*"));
    }
  };
  window.Worker = window.IFrameWorker;
}
