from ctsan.cli import main

main()
