// One field, one button. While Core stands by the sign-in is tried again by itself: the key it waits with is in this form
// and nowhere else.

import { type FormEvent, useEffect, useRef, useState } from "react";
import type { Failure } from "../data/answer.ts";
import { isPlain } from "../page/frame.tsx";
import { signIn, tab } from "../page/store.ts";
import { t } from "../text/text.ts";
import { Button } from "../ui/button.tsx";
import { Dialog } from "../ui/dialog.tsx";
import { Field } from "../ui/field.tsx";
import { Notice } from "../ui/notice.tsx";

/** Between two tries under a standby, unless Core asks for a longer pause. */
const STANDBY_PAUSE = 2000;

/** Why nobody is signed in; `again` is the pause before the next try, for what passes by itself. */
interface Said {
  text: string;
  again?: number;
}

function saidOf(failure: Failure): Said {
  if (failure.kind === "lost") {
    return { text: t("signIn.unreachable") };
  }
  const { status, message, code, retryAfter } = failure;
  if (status === 503) {
    return { text: t("signIn.standby"), again: Math.max(STANDBY_PAUSE, retryAfter ?? 0) };
  }
  // What is wrong with Core is not the key's fault.
  const fault = status >= 500 || status === 429;
  return { text: fault ? t("refused", { message, code: code ?? status }) : t("signIn.refused") };
}

function Form() {
  const [key, setKey] = useState("");
  const typed = useRef("");
  const [said, setSaid] = useState<Said | undefined>();
  const [pending, setPending] = useState(false);
  const again = said?.again;
  const waiting = again !== undefined;

  async function send() {
    setPending(true);
    const answer = await signIn(key.trim());
    setPending(false);
    // What came for a key that is there no more says nothing of the one that is.
    if ((answer.kind === "lost" || answer.kind === "refused") && typed.current === key) {
      setSaid(saidOf(answer));
    }
  }
  useEffect(() => {
    if (again === undefined || pending) {
      return;
    }
    let timer: ReturnType<typeof setTimeout> | undefined;
    // A hidden tab sends nothing (INV-W17).
    function plan() {
      clearTimeout(timer);
      timer = tab.visible() ? setTimeout(() => void send(), again) : undefined;
    }
    plan();
    const leave = tab.onChange(plan);
    return () => {
      clearTimeout(timer);
      leave();
    };
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
          typed.current = text;
          setSaid(undefined);
        }}
        error={waiting ? undefined : said?.text}
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
