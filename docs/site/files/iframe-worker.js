// The search is a worker, and browsers start none for a page that is opened as a file: then a hidden frame does its work.
if (location.protocol === "file:") {
  window.Worker = class extends EventTarget {
    constructor(url) {
      super()
      const frame = document.createElement("iframe")
      frame.hidden = true
      frame.srcdoc =
        "<script>postMessage = data => parent.postMessage(data, '*')</script>" +
        `<script src="${new URL(url, document.baseURI)}"></script>`
      this.loaded = new Promise(resolve => frame.addEventListener("load", () => resolve(frame.contentWindow)))
      window.addEventListener("message", event => {
        if (event.source !== frame.contentWindow) return
        this.dispatchEvent(new MessageEvent("message", { data: event.data }))
        this.onmessage?.(event)
      })
      document.body.append(frame)
      this.terminate = () => frame.remove()
    }

    postMessage(data) {
      this.loaded.then(worker => worker.dispatchEvent(new MessageEvent("message", { data })))
    }
  }
}
