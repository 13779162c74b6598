import { StrictMode } from "react";
import { createRoot } from "react-dom/client";
import { App } from "./page/app.tsx";
import { language } from "./text/text.ts";
import "./style/tokens.css";
import "./style/base.css";
import "./style/parts.css";
import "./style/pages.css";

document.documentElement.lang = language;
const root = document.getElementById("root");
if (root) {
  createRoot(root).render(
    <StrictMode>
      <App />
    </StrictMode>,
  );
}
