from kernelrl.cli import main
main()
