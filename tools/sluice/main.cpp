// sluice: compiles a model into a training plan and runs it. docs/cli.md lists the
// commands.

#include "tools/sluice/Cli.h"

int main(int argc, char **argv) {
  using namespace sluice::cli;
  CLI::App app{"Sluice compiles an ONNX model into a training plan - every kernel, byte "
               "offset and update decided "
               "ahead - and runs it."};
  app.footer("Example:\n"
             "  sluice compile model.onnx --spec train.yaml -o model.plan\n"
             "  sluice train model.plan --data images=idx:train-images.gz,scale=1/255 "
             "--data labels=idx:train-labels.gz --epochs 3 --checkpoint run\n"
             "  sluice eval model.plan --data ... --checkpoint run\n\n"
             "Exit codes: 0 done, 1 refused, 2 usage, 3 does not fit, 4 cannot run here, "
             "5 data or state damaged, "
             "6 a rank or device failed.");
  app.set_version_flag("--version", SLUICE_VERSION);
  app.require_subcommand(1);
  Console console;
  Command commands[] = {
      addImport(app, console), addCompile(app, console),   addTrain(app, console),
      addEval(app, console),   addInfer(app, console),     addCheck(app, console),
      addShow(app, console),   addExplain(app, console),   addExport(app, console),
      addFit(app, console),    addCalibrate(app, console), addSchema(app, console),
      addProbe(app, console),  addVerify(app, console),    addConsolidate(app, console)};
  for (Command &command : commands)
    command.app->add_flag("--json", console.json,
                          "print one JSON object on standard output and nothing else");
  try {
    app.parse(argc, argv);
  } catch (const CLI::ParseError &error) {
    return app.exit(error) == 0 ? 0 : static_cast<int>(sluice::StatusCode::usage);
  }
  for (Command &command : commands)
    if (command.app->parsed())
      return command.action();
  return static_cast<int>(sluice::StatusCode::usage);
}
