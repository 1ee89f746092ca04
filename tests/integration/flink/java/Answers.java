import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.io.PrintStream;
import java.nio.charset.StandardCharsets;

/**
 * Programs that are asked line by line: a line of standard input is a command, with tabs between its
 * words, and each answer is a line that begins with "ok" or "error".
 */
final class Answers {
    /** What a program does with the words of a command. */
    interface Command {
        String run(String[] words) throws Exception;
    }

    private Answers() {}

    /** Answer all commands, and end this process; what Flink prints goes to standard error. */
    static void to(Command command) throws Exception {
        PrintStream answers = new PrintStream(System.out, true, StandardCharsets.UTF_8);
        System.setOut(System.err);
        BufferedReader lines =
                new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
        for (String line = lines.readLine(); line != null; line = lines.readLine()) {
            try {
                answers.println("ok " + command.run(line.split("\t")));
            } catch (Throwable problem) {
                problem.printStackTrace();
                answers.println("error " + describe(problem));
            }
        }
        Runtime.getRuntime().halt(0);
    }

    /** A problem and its causes, in one line. */
    static String describe(Throwable problem) {
        StringBuilder text = new StringBuilder();
        for (Throwable cause = problem; cause != null; cause = cause.getCause()) {
            text.append(cause.getClass().getSimpleName()).append(": ").append(cause.getMessage()).append(" | ");
        }
        return text.toString().replace('\n', ' ');
    }
}
