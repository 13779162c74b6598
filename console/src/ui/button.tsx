import type { ButtonHTMLAttributes } from "react";

interface Props extends ButtonHTMLAttributes<HTMLButtonElement> {
  /** `primary` for the one thing a page is for, `danger` for what cannot be undone. */
  look?: "plain" | "primary" | "danger" | "quiet";
}

export function Button({ look = "plain", className = "", type = "button", ...rest }: Props) {
  return <button type={type} className={`button ${look} ${className}`.trim()} {...rest} />;
}
