import { HeadingOf } from "../page/router.tsx";
import { deployment, useSnapshot } from "../page/store.ts";
import { type Key, t } from "../text/text.ts";
import { Copyable } from "../ui/copy.tsx";
import { Facts } from "../ui/facts.tsx";
import { Notice, StaleBanner } from "../ui/notice.tsx";

/** What a public address is good for, as far as it tells (core.md section 1). */
export function verdict(address: string | null): Extract<Key, `service.${"usable" | "unset" | "loopback"}`> {
  if (address === null) {
    return "service.unset";
  }
  const host = new URL(address).hostname.replace(/\.$/, "").replace(/^\[|\]$/g, "");
  const own =
    host === "localhost" ||
    host.endsWith(".localhost") ||
    /^(127\.|0\.0\.0\.0$)/.test(host) ||
    /^(::1?|::ffff:(7f[0-9a-f]{2}:|0:0$).*)$/.test(host);
  return own ? "service.loopback" : "service.usable";
}

export function Service() {
  const read = useSnapshot(deployment);
  const found = read.value;
  if (found === undefined) {
    return null;
  }
  const said = verdict(found.core_url);
  const runtime = found.specification?.runtime;
  return (
    <>
      <HeadingOf title={t("service.title")} />
      <StaleBanner of={[read]} again={() => void deployment.refresh()} />
      <section className={read.stale ? "card stale" : "card"}>
        <h2>{t("service.address")}</h2>
        {found.core_url !== null && <p className="large">{found.core_url}</p>}
        <Notice look={said === "service.usable" ? "good" : "warn"}>{t(said)}</Notice>
        {said !== "service.usable" && <p>{t("service.how")}</p>}
        {said === "service.usable" && found.core_url?.startsWith("http:") && (
          <Notice look="warn">{t("http")}</Notice>
        )}
      </section>
      <section className={read.stale ? "card stale" : "card"}>
        <h2>{t("service.details")}</h2>
        <Facts
          facts={[
            [
              t("service.installation"),
              <Copyable key="id" text={found.installation_id} label={t("service.installation")} />,
            ],
            [t("service.epoch"), found.owner_epoch],
            [t("service.generation"), found.generation],
            [
              t("sandbox.runtime"),
              runtime ? (
                <Copyable
                  key="commit"
                  text={runtime.source_commit}
                  shown={runtime.source_commit.slice(0, 12)}
                  label={t("sandbox.runtime")}
                />
              ) : (
                t("none")
              ),
            ],
          ]}
        />
      </section>
    </>
  );
}
