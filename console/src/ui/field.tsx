// A labelled field with its help and its error. The error is tied to the field and said at once.

import { type InputHTMLAttributes, type ReactNode, useId } from "react";

interface FieldProps extends Omit<InputHTMLAttributes<HTMLInputElement>, "onChange" | "value"> {
  label: string;
  value: string;
  onChange: (value: string) => void;
  error?: string | undefined;
  hint?: ReactNode;
}

export function Field({ label, value, onChange, error, hint, ...rest }: FieldProps) {
  const id = useId();
  return (
    <div className="field">
      <label htmlFor={id}>{label}</label>
      <input
        id={id}
        value={value}
        onChange={(event) => onChange(event.target.value)}
        aria-invalid={error !== undefined}
        aria-describedby={describedBy(id, error, hint)}
        autoComplete="off"
        spellCheck={false}
        {...rest}
      />
      <Below id={id} error={error} hint={hint} />
    </div>
  );
}

interface AreaProps {
  label: string;
  value: string;
  onChange: (value: string) => void;
  error?: string | undefined;
  hint?: ReactNode;
}

export function Area({ label, value, onChange, error, hint }: AreaProps) {
  const id = useId();
  return (
    <div className="field">
      <label htmlFor={id}>{label}</label>
      <textarea
        id={id}
        rows={6}
        value={value}
        onChange={(event) => onChange(event.target.value)}
        aria-invalid={error !== undefined}
        aria-describedby={describedBy(id, error, hint)}
        spellCheck={false}
      />
      <Below id={id} error={error} hint={hint} />
    </div>
  );
}

interface ChoiceProps<T extends string> {
  label: string;
  value: T;
  onChange: (value: T) => void;
  options: { value: T; label: string; text?: string; disabled?: boolean }[];
  /** Beside each other instead of below. */
  inline?: boolean;
}

/** One of a few, all visible. */
export function Choice<T extends string>({ label, value, onChange, options, inline }: ChoiceProps<T>) {
  const name = useId();
  return (
    <fieldset className={inline ? "choice inline" : "choice"}>
      <legend>{label}</legend>
      {options.map((option) => (
        <label key={option.value}>
          <input
            type="radio"
            name={name}
            value={option.value}
            checked={option.value === value}
            disabled={option.disabled}
            onChange={() => onChange(option.value)}
          />
          <span>
            {option.label}
            {option.text && <small>{option.text}</small>}
          </span>
        </label>
      ))}
    </fieldset>
  );
}

interface CheckProps {
  label: string;
  title?: string;
  value: boolean;
  onChange: (value: boolean) => void;
}

/** Yes or no. */
export function Check({ label, title, value, onChange }: CheckProps) {
  return (
    <label className="check" title={title}>
      <input type="checkbox" checked={value} onChange={(event) => onChange(event.target.checked)} />
      <span>{label}</span>
    </label>
  );
}

function describedBy(id: string, error: string | undefined, hint: ReactNode): string | undefined {
  const ids = [hint ? `${id}-hint` : "", error === undefined ? "" : `${id}-error`].filter(Boolean);
  return ids.length > 0 ? ids.join(" ") : undefined;
}

function Below({ id, error, hint }: { id: string; error: string | undefined; hint: ReactNode }) {
  return (
    <>
      {hint && (
        <p className="hint" id={`${id}-hint`}>
          {hint}
        </p>
      )}
      {error !== undefined && (
        <p className="error" id={`${id}-error`} role="alert">
          {error}
        </p>
      )}
    </>
  );
}
