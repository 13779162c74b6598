import { verdict } from "../adding/blocker.ts";
import { HeadingOf } from "../page/router.tsx";
import { deployment, release, useFresh, useSnapshot } from "../page/store.ts";
import { listed, t } from "../text/text.ts";
import { Copyable } from "../ui/copy.tsx";
import { Facts } from "../ui/facts.tsx";
import { Notice, StaleBanner } from "../ui/notice.tsx";

export function Service() {
  const read = useSnapshot(deployment);
  const served = useFresh(release);
  const found = read.value;
  if (found === undefined) {
    return null;
  }
  const said = verdict(found.core_url);
  const current = served?.value;
  const backends = (["microsandbox", "docker"] as const).filter((one) => current?.providers[one]);
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
              t("service.release"),
              current ? (
                <Copyable
                  key="commit"
                  text={current.commit}
                  shown={current.commit.slice(0, 12)}
                  label={t("service.release")}
                />
              ) : (
                t("none")
              ),
            ],
            [
              t("service.backends"),
              backends.length > 0 ? listed(backends.map((one) => t(`provider.${one}`))) : t("none"),
            ],
          ]}
        />
        {current === null && <p className="hint">{t("service.noRelease")}</p>}
        {served?.failure && <p className="hint">{t("blocked.unread")}</p>}
      </section>
    </>
  );
}
