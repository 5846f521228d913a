// How samples come to the adapter.

// configuration is what prometheus.yml says to send samples to the adapter that the page is of, and to read them.
export function configuration() {
  const url = new URL(".", location.href).href;
  return `remote_write:\n  - url: ${url}api/v1/write\nremote_read:\n  - url: ${url}api/v1/read\n    read_recent: true`;
}
