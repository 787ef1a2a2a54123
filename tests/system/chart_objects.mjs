// Reads Kubernetes objects (JSON lines on standard input), checks each against the models of the Kubernetes
// and Prometheus operator APIs, and prints what is wrong: values by their validate(), unknown fields by the
// TypeScript compiler, which refuses fields that an interface does not have.
//
// usage: node chart_objects.mjs NODE_MODULES FOLDER      FOLDER: empty, for the compiler's input

import {execFileSync} from "node:child_process";
import {readFileSync, symlinkSync, writeFileSync} from "node:fs";
import {pathToFileURL} from "node:url";

const [modules, folder] = process.argv.slice(2);
const objects = readFileSync(0, "utf8").trim().split("\n").map((line) => JSON.parse(line));
const packageOf = (api) => (api.startsWith("monitoring.coreos.com/")
  ? "@kubernetes-models/prometheus-operator" : "kubernetes-models");

const source = [];
let wrong = 0;
for (const {from, object} of objects) {
  const module = `${packageOf(object.apiVersion)}/${object.apiVersion}/${object.kind}`;
  const {[object.kind]: Model} = await import(pathToFileURL(`${modules}/${module}.js`));
  try {
    new Model(object).validate();
  } catch (error) {
    wrong++;
    console.log(`${from}: ${object.kind} ${object.metadata.name}: ${error.message}`);
  }
  source.push(`const o${source.length}: import(${JSON.stringify(module)}).I${object.kind} = ` +
    `${JSON.stringify(object)};`);
}

symlinkSync(modules, `${folder}/node_modules`);
writeFileSync(`${folder}/objects.ts`, source.join("\n") + "\nexport {};\n");
try {
  execFileSync(process.execPath, [`${modules}/typescript/bin/tsc`, "--noEmit", "--strict", "--skipLibCheck",
    "--module", "nodenext", "--target", "es2022", `${folder}/objects.ts`], {encoding: "utf8"});
} catch (error) {
  for (const line of error.stdout.trim().split("\n")) {
    wrong++;
    const at = /objects\.ts\((\d+),/.exec(line);
    const {from, object} = at ? objects[at[1] - 1] : {from: "tsc", object: {kind: "", metadata: {name: ""}}};
    console.log(`${from}: ${object.kind} ${object.metadata.name}: ${line.slice(line.indexOf("error"))}`);
  }
}
process.exit(wrong ? 1 : 0);
