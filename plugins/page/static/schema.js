// Checks a value against a JSON schema: the keywords that structured output uses most. Others are named as not checked.

const CHECKED = new Set(
  ("$schema $defs definitions $ref $id $comment title description default examples type enum const properties required " +
    "additionalProperties items prefixItems minItems maxItems uniqueItems minLength maxLength pattern minimum maximum " +
    "exclusiveMinimum exclusiveMaximum multipleOf anyOf oneOf allOf not minProperties maxProperties").split(" "),
);
const MAX_PROBLEMS = 20;
const MAX_DEPTH = 100;

/**
 * Return what is wrong with a value; an empty list if it fits the schema.
 * @param {any} value decoded JSON.
 * @param {object|boolean} schema the schema.
 */
export function problems(value, schema) {
  const found = [];
  check(value, schema, schema, "", found, 0);
  return found.slice(0, MAX_PROBLEMS);
}

/** Return the keywords of a schema that `problems` does not check. */
export function unchecked(schema, found = new Set()) {
  if (Array.isArray(schema)) schema.forEach((each) => unchecked(each, found));
  else if (schema && typeof schema === "object") {
    for (const [name, value] of Object.entries(schema)) {
      if (!CHECKED.has(name)) found.add(name);
      else if (["properties", "$defs", "definitions"].includes(name)) Object.values(value).forEach((each) => unchecked(each, found));
      else if (!["enum", "const", "default", "examples", "required"].includes(name)) unchecked(value, found);
    }
  }
  return [...found];
}

function check(value, schema, root, path, found, depth) {
  const say = (text) => found.push(`${path || "the reply"} ${text}`);
  if (found.length >= MAX_PROBLEMS || schema === true || schema === undefined) return;
  if (schema === false) return void say("is not allowed");
  if (depth > MAX_DEPTH) return void say("is nested too deeply to be checked");
  if (schema.$ref !== undefined) {
    const target = resolve(schema.$ref, root);
    if (target === undefined) return void say(`has a schema ${schema.$ref}, which does not exist`);
    check(value, target, root, path, found, depth + 1);
  }
  if (schema.type !== undefined && ![schema.type].flat().some((type) => isOf(value, type))) {
    return void say(`is ${kind(value)}; it must be ${[schema.type].flat().join(" or ")}`);
  }
  if (schema.enum && !schema.enum.some((each) => same(each, value))) say(`must be one of ${schema.enum.map((each) => JSON.stringify(each)).join(", ")}`);
  if ("const" in schema && !same(schema.const, value)) say(`must be ${JSON.stringify(schema.const)}`);
  if (typeof value === "string") checkString(value, schema, say);
  if (typeof value === "number") checkNumber(value, schema, say);
  if (Array.isArray(value)) checkArray(value, schema, root, path, found, depth, say);
  else if (value && typeof value === "object") checkObject(value, schema, root, path, found, depth, say);
  checkCombined(value, schema, root, path, found, depth, say);
}

function checkString(value, schema, say) {
  const length = [...value].length;
  if (length < (schema.minLength ?? 0)) say(`has ${length} characters; the least is ${schema.minLength}`);
  if (length > (schema.maxLength ?? Infinity)) say(`has ${length} characters; the most is ${schema.maxLength}`);
  if (schema.pattern !== undefined) {
    try {
      if (!new RegExp(schema.pattern, "u").test(value)) say(`does not match ${schema.pattern}`);
    } catch {
      say(`cannot be checked: this browser does not read the pattern ${schema.pattern}`);
    }
  }
}

function checkNumber(value, schema, say) {
  if (value < schema.minimum) say(`is ${value}; the least is ${schema.minimum}`);
  if (value > schema.maximum) say(`is ${value}; the most is ${schema.maximum}`);
  if (value <= schema.exclusiveMinimum) say(`is ${value}; it must be above ${schema.exclusiveMinimum}`);
  if (value >= schema.exclusiveMaximum) say(`is ${value}; it must be below ${schema.exclusiveMaximum}`);
  const parts = value / schema.multipleOf;
  if (schema.multipleOf && Math.abs(parts - Math.round(parts)) > 1e-9) say(`must be a multiple of ${schema.multipleOf}`);
}

function checkArray(value, schema, root, path, found, depth, say) {
  if (value.length < (schema.minItems ?? 0)) say(`has ${value.length} items; the least is ${schema.minItems}`);
  if (value.length > (schema.maxItems ?? Infinity)) say(`has ${value.length} items; the most is ${schema.maxItems}`);
  if (schema.uniqueItems && value.some((each, i) => value.slice(0, i).some((other) => same(each, other)))) say("has an item twice");
  const first = schema.prefixItems ?? [];
  value.forEach((each, i) => check(each, i < first.length ? first[i] : schema.items, root, `${path}[${i}]`, found, depth + 1));
}

function checkObject(value, schema, root, path, found, depth, say) {
  const at = (name) => (path ? `${path}.${name}` : name);
  const names = Object.keys(value);
  for (const name of schema.required ?? []) if (!Object.hasOwn(value, name)) found.push(`${at(name)} is missing`);
  if (names.length < (schema.minProperties ?? 0)) say(`has ${names.length} members; the least is ${schema.minProperties}`);
  if (names.length > (schema.maxProperties ?? Infinity)) say(`has ${names.length} members; the most is ${schema.maxProperties}`);
  for (const name of names) {
    const isKnown = Object.hasOwn(schema.properties ?? {}, name);
    if (!isKnown && schema.additionalProperties === false) found.push(`${at(name)} is not in the schema`);
    else check(value[name], isKnown ? schema.properties[name] : schema.additionalProperties, root, at(name), found, depth + 1);
  }
}

function checkCombined(value, schema, root, path, found, depth, say) {
  const fits = (each) => {
    const inner = [];
    check(value, each, root, path, inner, depth + 1);
    return !inner.length;
  };
  for (const each of schema.allOf ?? []) check(value, each, root, path, found, depth + 1);
  if (schema.anyOf && !schema.anyOf.some(fits)) say("fits none of the schemas of anyOf");
  if (schema.oneOf && schema.oneOf.filter(fits).length !== 1) say("must fit exactly one of the schemas of oneOf");
  if (schema.not !== undefined && fits(schema.not)) say("fits a schema that it must not fit");
}

function resolve(reference, root) {
  if (!reference.startsWith("#")) return undefined;
  return reference.slice(1).split("/").filter(Boolean)
    .reduce((at, name) => at?.[decodeURIComponent(name).replaceAll("~1", "/").replaceAll("~0", "~")], root);
}

function isOf(value, type) {
  return type === kind(value) || (type === "number" && kind(value) === "integer");
}

function kind(value) {
  if (value === null) return "null";
  if (Array.isArray(value)) return "array";
  return Number.isInteger(value) ? "integer" : typeof value;
}

function same(first, second) {
  if (first === second) return true;
  if (!first || !second || typeof first !== "object" || typeof second !== "object") return false;
  const names = Object.keys(first);
  return Array.isArray(first) === Array.isArray(second) && names.length === Object.keys(second).length &&
    names.every((name) => Object.hasOwn(second, name) && same(first[name], second[name]));
}
