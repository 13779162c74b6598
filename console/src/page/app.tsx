// Who is signed in sees the page that the address names; a session that ends later is renewed in a dialog over it, so
// that what was typed stays.

import { useEffect } from "react";
import { Audit } from "../pages/audit.tsx";
import { NodePage } from "../pages/node.tsx";
import { NodeList } from "../pages/nodes.tsx";
import { NotFound } from "../pages/not-found.tsx";
import { Overview } from "../pages/overview.tsx";
import { SandboxSettings } from "../pages/sandbox.tsx";
import { Service } from "../pages/service.tsx";
import { SignInDialog, SignInPage } from "../pages/sign-in.tsx";
import { StaleBanner } from "../ui/notice.tsx";
import { Frame } from "./frame.tsx";
import { go, usePath } from "./router.tsx";
import { deployment, useResource, useSession, whileChanging } from "./store.ts";

export function App() {
  const path = usePath();
  const session = useSession();
  const read = useResource(deployment, whileChanging);
  useEffect(() => {
    // Signing in leads where the address pointed before, or home.
    if (session === "in" && path === "/sign-in") {
      go("/");
    }
  }, [session, path]);
  if (session === "out") {
    return <SignInPage />;
  }
  if (read.value === undefined) {
    return (
      <main className="alone">
        <StaleBanner of={[read]} again={() => void deployment.refresh()} />
      </main>
    );
  }
  return (
    <>
      <Frame path={path}>{page(path)}</Frame>
      {session === "ended" && <SignInDialog />}
    </>
  );
}

function page(path: string) {
  switch (path) {
    case "/":
    case "/sign-in":
      return <Overview />;
    case "/nodes":
      return <NodeList />;
    case "/settings/sandbox":
      return <SandboxSettings />;
    case "/settings/service":
      return <Service />;
    case "/settings/audit":
      return <Audit />;
  }
  const id = /^\/nodes\/([^/]+)$/.exec(path)?.[1];
  return id === undefined ? <NotFound /> : <NodePage key={id} id={id} />;
}
