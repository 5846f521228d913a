// The tenant that the page asks about, in a store with tenants. It is remembered by the browser.

// chosen returns the header that names it, or nothing.
export function chosen() {
  const header = localStorage.getItem("tenantHeader"), tenant = localStorage.getItem("tenant");
  return header && tenant ? { [header]: tenant } : {};
}

// A TenantNeeded says that the adapter wants a tenant.
export class TenantNeeded extends Error {
  constructor() {
    super("This store has tenants. Choose one above.");
  }
}

// listen shows the field of the tenant when one is needed, and calls changed when another one is chosen. choices returns which there are.
export function listen(choices, changed) {
  const label = document.getElementById("tenants"), field = label.querySelector("input");
  field.value = localStorage.getItem("tenant") ?? "";
  label.hidden = !field.value;
  const ask = async () => {
    label.hidden = false;
    const { header, tenants } = await choices();
    const isNew = localStorage.getItem("tenantHeader") !== header;
    localStorage.setItem("tenantHeader", header);
    if (isNew && field.value.trim()) { // it was chosen before the header was known
      changed();
    }
    label.querySelector("datalist").replaceChildren(...tenants.map((value) => Object.assign(document.createElement("option"), { value })));
    if (tenants.length === 1 && !field.value) {
      field.value = tenants[0];
      field.dispatchEvent(new Event("change"));
    }
  };
  addEventListener("tenantneeded", () => ask().catch(() => {})); // what shows the error tries again
  field.addEventListener("change", () => {
    localStorage.setItem("tenant", field.value.trim());
    changed();
  });
}
