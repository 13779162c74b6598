import { Heading, Link } from "../page/router.tsx";
import { t } from "../text/text.ts";

export function NotFound() {
  return (
    <>
      <Heading text="notFound.title" />
      <p>{t("notFound.text")}</p>
      <p>
        <Link to="/">{t("notFound.home")}</Link>
      </p>
    </>
  );
}
