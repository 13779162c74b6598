// One field, one button. While Core stands by the sign-in is tried again by itself: the key it waits with is in this form
// and nowhere else.

import { type FormEvent, useEffect, useState } from "react";
import { isPlain } from "../page/frame.tsx";
import { signIn } from "../page/store.ts";
import { type Key, t } from "../text/text.ts";
import { Button } from "../ui/button.tsx";
import { Dialog } from "../ui/dialog.tsx";
import { Field } from "../ui/field.tsx";
import { Notice } from "../ui/notice.tsx";

const STANDBY_PAUSE = 2000;

function Form() {
  const [key, setKey] = useState("");
  const [said, setSaid] = useState<Key | undefined>();
  const [pending, setPending] = useState(false);
  const waiting = said === "signIn.standby";

  async function send() {
    setPending(true);
    const answer = await signIn(key.trim());
    setPending(false);
    if (answer.kind === "lost") {
      setSaid("signIn.unreachable");
    } else if (answer.kind === "refused") {
      setSaid(answer.status === 503 ? "signIn.standby" : "signIn.refused");
    }
  }
  useEffect(() => {
    if (waiting && !pending) {
      const timer = setTimeout(() => void send(), STANDBY_PAUSE);
      return () => clearTimeout(timer);
    }
  });
  function submit(event: FormEvent) {
    event.preventDefault();
    void send();
  }
  return (
    <form onSubmit={submit} className="stack">
      <Field
        label={t("signIn.key")}
        type="password"
        value={key}
        onChange={(text) => {
          setKey(text);
          setSaid(undefined);
        }}
        error={said && !waiting ? t(said) : undefined}
        hint={t("signIn.hint")}
        required
        autoFocus
      />
      {isPlain() && <Notice look="warn">{t("http")}</Notice>}
      {waiting && <Notice look="info">{t("signIn.standby")}</Notice>}
      <Button type="submit" look="primary" disabled={pending || key.trim() === ""}>
        {t("signIn.submit")}
      </Button>
    </form>
  );
}

export function SignInPage() {
  useEffect(() => {
    document.title = `${t("signIn.title")} · ${t("product")}`;
    if (window.location.pathname === "/") {
      window.history.replaceState(null, "", "/sign-in");
    }
  }, []);
  return (
    <main className="alone">
      <div className="card sign-in">
        <p className="brand">{t("product")}</p>
        <h1>{t("signIn.title")}</h1>
        <Form />
      </div>
    </main>
  );
}

/** Over the page, when its session ended. It does not close before somebody is signed in. */
export function SignInDialog() {
  return (
    <Dialog title={t("signIn.again")} pending>
      <p>{t("signIn.againText")}</p>
      <Form />
    </Dialog>
  );
}
