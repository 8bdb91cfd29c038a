"""``ingot completion``: a script that lets a shell complete commands and options."""

from typing import Annotated

from ingot.cli.arguments import Json
from ingot.cli.commands import COMMANDS
from ingot.cli.output import print_json
from ingot.cli.parameters import Argument, BadParameter
from ingot.cli.parser import command_parser, options_of

__all__ = ["completion"]


def completion(
    shell: Annotated[str, Argument(metavar="SHELL", help="bash, zsh or fish.")] = "bash",
    json: Json = False,
) -> None:
    """Print a script for completion in a shell.

    For bash: eval "$(ingot completion bash)" in ~/.bashrc; for zsh: the same with zsh in ~/.zshrc;
    for fish: ingot completion fish > ~/.config/fish/completions/ingot.fish
    """
    options = {name: _long_options(name) for name in COMMANDS}
    if json:
        print_json(options)
    elif shell == "bash":
        print(_bash(options))
    elif shell == "zsh":
        print("autoload -U +X bashcompinit && bashcompinit")
        print(_bash(options))
    elif shell == "fish":
        print(_fish(options))
    else:
        raise BadParameter(f"shell is {shell!r}, not bash, zsh or fish")


def _long_options(name: str) -> list[str]:
    parser = command_parser(name, COMMANDS[name].load())
    return [option for option in options_of(parser) if option.startswith("--")]


def _bash(options: dict[str, list[str]]) -> str:
    cases = "\n".join(f'    {name}) words="{" ".join(each)}" ;;' for name, each in options.items())
    return f"""_ingot_complete() {{
  local word="${{COMP_WORDS[COMP_CWORD]}}" words=""
  if [ "$COMP_CWORD" -eq 1 ]; then
    COMPREPLY=($(compgen -W "{" ".join(options)} --help --version" -- "$word"))
    return
  fi
  case "${{COMP_WORDS[1]}}" in
{cases}
  esac
  if [ "${{word#-}}" != "$word" ]; then
    COMPREPLY=($(compgen -W "$words" -- "$word"))
  else
    COMPREPLY=()
  fi
}}
complete -o default -F _ingot_complete ingot"""


def _fish(options: dict[str, list[str]]) -> str:
    lines = []
    for name, entry in COMMANDS.items():
        lines.append(
            f"complete -c ingot -n __fish_use_subcommand -a {name} -d {_quoted(entry.summary)}"
        )
        lines += [
            f"complete -c ingot -n '__fish_seen_subcommand_from {name}' -l {option[2:]}"
            for option in options[name]
        ]
    return "\n".join(lines)


def _quoted(text: str) -> str:
    return "'" + text.replace("\\", "\\\\").replace("'", "\\'") + "'"
