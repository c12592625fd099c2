"""Reads the launch files in the folders of a folder: with Python's parsers, or the trainers' own.

    parsers.py plain|trainers FOLDER
"""
import json
import logging
import pathlib
import re
import sys


class Ranks:
    """Stands for the process groups of a job: as many replicas as the file's batch says."""

    def __init__(self, replicas):
        self.replicas = replicas

    def get_data_parallel_world_size(self):
        return self.replicas

    get_world_size = get_data_parallel_world_size


def expect(where, found, expected):
    if found != expected:
        sys.exit(f'{where}: read as {found!r}, written as {expected!r}')


def read_deepspeed(path):
    from accelerate.utils.deepspeed import HfDeepSpeedConfig
    from deepspeed import comm
    from deepspeed.runtime.config import DeepSpeedConfig
    comm.get_rank = lambda group=None: 0  # as if torch.distributed were initialised
    written = json.loads(path.read_text())
    replicas = written['train_batch_size'] // (
        written['train_micro_batch_size_per_gpu'] * written['gradient_accumulation_steps'])
    config = DeepSpeedConfig(str(path), mpu=Ranks(replicas))
    expect(path, config.train_batch_size, written['train_batch_size'])
    expect(path, config.gradient_accumulation_steps, written['gradient_accumulation_steps'])
    expect(path, int(config.zero_config.stage), written['zero_optimization']['stage'])
    expect(path, config.bfloat16_config.enabled, 'bf16' in written)
    expect(path, config.float16_config.enabled, 'fp16' in written)
    expect(path, config.tensor_parallel_config.autotp_size,
           written.get('tensor_parallel', {}).get('autotp_size', 0))
    accelerated = HfDeepSpeedConfig(str(path))
    expect(path, accelerated.is_zero3(), written['zero_optimization']['stage'] == 3)


def read_torchtitan(path):
    from torchtitan.config.manager import ConfigManager
    config = ConfigManager().parse_args(['--job.config_file', str(path)])
    text = path.read_text()
    for name in ('data_parallel_replicate_degree', 'data_parallel_shard_degree',
                 'tensor_parallel_degree', 'context_parallel_degree', 'pipeline_parallel_degree'):
        written = re.search(rf'^{name} = (\d+)$', text, re.MULTILINE)
        expect(path, getattr(config.parallelism, name), int(written.group(1)))
    expect(path, config.activation_checkpoint.mode,
           re.search(r'^mode = "(\w+)"$', text, re.MULTILINE).group(1))


def read_accelerate(path):
    """As `accelerate launch`: the file, its checks, and the environment of the processes."""
    import os

    from accelerate.commands.config.config_args import ClusterConfig
    from accelerate.commands.launch import _validate_launch_command, launch_command_parser
    from accelerate.parallelism_config import ParallelismConfig
    from accelerate.utils import FullyShardedDataParallelPlugin
    from accelerate.utils.launch import prepare_deepspeed_cmd_env, prepare_multi_gpu_env
    config = ClusterConfig.from_yaml_file(str(path))
    parser = launch_command_parser()
    args = parser.parse_args(['--config_file', str(path), '--machine_rank', '0',
                              '--main_process_ip', 'n0', '--main_process_port', '29500', 'train.py'])
    args, _, _ = _validate_launch_command(args)
    how = config.distributed_type.value
    expect(path, args.num_processes, config.num_processes)
    expect(path, (args.multi_gpu, args.use_deepspeed, args.use_fsdp),
           (how == 'MULTI_GPU', how == 'DEEPSPEED', how == 'FSDP'))
    if how == 'DEEPSPEED':
        args.deepspeed_fields_from_accelerate_config = ','.join(config.deepspeed_config)
        expect(path, prepare_deepspeed_cmd_env(args)[1]['ACCELERATE_DEEPSPEED_ZERO_STAGE'],
               str(config.deepspeed_config['zero_stage']))
        return
    made = prepare_multi_gpu_env(args)
    expect(path, made['ACCELERATE_MIXED_PRECISION'], config.mixed_precision)
    if how != 'FSDP':
        return
    before = dict(os.environ)
    os.environ.update(made)
    try:
        plugin = FullyShardedDataParallelPlugin()
        expect(path, plugin.fsdp_version, 2)
        expect(path, plugin.reshard_after_forward, config.fsdp_config['fsdp_reshard_after_forward'])
        expect(path, plugin.activation_checkpointing,
               config.fsdp_config['fsdp_activation_checkpointing'])
        if config.parallelism_config:
            sizes = ParallelismConfig()
            expect(path, sizes.total_size, config.num_processes)
            expect(path, sizes.tp_size, config.parallelism_config['parallelism_config_tp_size'])
    finally:
        os.environ.clear()
        os.environ.update(before)


def read_plain(path):
    if path.suffix == '.yaml':
        try:
            import yaml
        except ImportError:
            return
        yaml.safe_load(path.read_text())
        return
    if path.suffix == '.json':
        json.loads(path.read_text())
        return
    try:
        import tomllib
    except ImportError:  # before Python 3.11
        return
    tomllib.loads(path.read_text())


def main():
    how, folder = sys.argv[1], pathlib.Path(sys.argv[2])
    logging.disable(logging.CRITICAL)
    files = sorted([*folder.glob('*/ds_config.json'), *folder.glob('*/parallelism.toml'),
                    *folder.glob('*/accelerate.yaml')])
    expect(folder, len(files), 26)
    for path in files:
        if how == 'plain':
            read_plain(path)
        elif path.suffix == '.json':
            read_deepspeed(path)
        elif path.suffix == '.yaml':
            read_accelerate(path)
        else:
            read_torchtitan(path)
    print(f'{len(files)} files read')


main()
