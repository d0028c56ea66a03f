# SPDX-License-Identifier: Apache-2.0
#
# The main function of deepgen's quick start, as it is printed there. test/python_kcg.py runs it.
from model import *

if __name__ == "__main__":
    devid = 7  # 设备号
    PathManager.init(clearPkl=True, clearCache=True, clearTmp=True, clearDump=True)  # 路径管理器初始化。执行缓存目录清理等
    DeviceInfo.init_cuda([devid])  # 设备初始化
    # 模型构建以及参数定义（注意：需要对模型定义做修改以实现算子替换）
    args = ModelArgs()
    model = BERT(True).to(devid)
    model_bench = BERT(False).to(devid)
    batch = 2
    max_seq_len = 1024
    input_ids = torch.randint(1, args.vocab_size, size=(batch, max_seq_len)).to(devid)

    # 如果存在调好的高性能kernel，想要使用，需要根据配置文件手动注册之。 precompiled.json 中已经注册了一些性能好的kernel（之前根据bert、gpt2和llama2中的matmul形状调过一次）
    registerPreCompiledKernelByJson('/home/xushilong/DeepGen/precompiled.json',7)
    # 没有kernel，想通过优化matmul算子优化模型性能，则执行下列函数，会获取所有matmul的形状后开始调kernel ：
    # compile_model(7, run_model(model_bench,args,input_ids))

    def f_benchmark():
        print("========= eval bench time =======",flush=True)
        return model_bench(input_ids)
    def f_base():
        print("========= eval base time =======",flush=True)
        return model(input_ids)
    
    # 
    
    out0,t0 = evaluate_model_time(f_base)
    out1,t1 = evaluate_model_time(f_benchmark)
    
    print(f"=== model run time : ours ={t1}, base = {t0}, speedup : {t0/t1}")
    opCallCounter = OpProxy.GetOpCallCounts()
    print("==== call ops :",opCallCounter)
    # mmCallCount = opCallCounter[matmul.MatmulOp.__name__]
    
    if torch.allclose(out0,out1,atol=1e-3,rtol=1e-3):
        print("===== model test correct ")
    else:
        diff, maxerr = compare_with_error(out0,out1)
        print(f"===== model test error ! diff, maxerr = {diff, maxerr}")
        print("baseline = ",out0)
        print("user = ", out1)
